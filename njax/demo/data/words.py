"""Common words of the world; both splits share them."""

from __future__ import annotations

COLOURS = "red blue green yellow black white grey brown pink orange purple silver gold".split()

ANIMALS = (
    "bear bird camel cat cow crow deer dog duck eagle fish fox frog goat goose hare hawk hen "
    "horse lamb lion mole mouse otter owl ox panda parrot pig pony rabbit rat raven seal sheep "
    "snail snake spider swan tiger toad turtle whale wolf zebra"
).split()

FRUITS = (
    "apple apricot banana berry cherry coconut date fig grape kiwi lemon lime mango melon nut "
    "olive orange papaya peach pear plum"
).split()

THINGS = (
    "anchor apron bag ball basket bell belt bench blanket boat book bottle bowl box brick "
    "bridge broom brush bucket button cable camera candle card carpet chain chair clock coat "
    "coin comb cup curtain desk door drum fence flag fork glove guitar hammer hat helmet hook "
    "jacket jar kettle key knife ladder lamp lantern letter lock map mask mirror mug nail "
    "needle oven paddle paint pan paper pen pencil piano pillow pipe plate pot purse radio ring "
    "rope ruler saddle sail saw scarf shelf shield shirt shoe shovel sofa soap spade spoon "
    "stamp stone stool stove string table tent ticket torch towel tray umbrella vase violin "
    "wagon wheel whistle window"
).split()

ADJECTIVES = (
    "big bold brave bright calm clean clever cold cool dark deep dry early fair fast fine flat "
    "free fresh full gentle glad good grand happy hard heavy high hot kind large late light "
    "little long loud lucky mild narrow neat new nice old open plain proud quick quiet rare "
    "ready rich round safe sharp short shy simple slow small smooth soft solid strong sweet "
    "tall tame thick thin tidy tiny true warm weak wide wild wise young"
).split()

VERBS = (
    "answer ask bake bring build buy carry catch clean climb cook cut dance draw drink drive "
    "eat fill find fix fold follow grow help hide hold jump keep learn leave lift listen look "
    "make meet move open paint play pull push read rest ride run sail sell send shine sing sit "
    "sleep speak stand start stay stop study swim take talk teach throw touch travel turn wait "
    "walk wash watch wear work write"
).split()

JOBS = (
    "baker barber builder carpenter chef clerk dentist doctor driver editor farmer fisher "
    "gardener guard guide judge lawyer librarian mechanic miller nurse painter pilot plumber "
    "poet porter potter sailor singer smith tailor teacher vet waiter weaver writer"
).split()

WORDS = sorted({*COLOURS, *ANIMALS, *FRUITS, *THINGS, *ADJECTIVES, *VERBS, *JOBS})

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
_TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()


def in_words(number: int) -> str:
    """0 to 99 in English words."""
    if number < 20:
        return _ONES[number]
    ten, one = divmod(number, 10)
    return _TENS[ten] + (f"-{_ONES[one]}" if one else "")


def listed(items: list[str]) -> str:
    """a, b and c."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"
