"""The template environment: what Hugging Face templates expect, and what hostile ones may not."""

from __future__ import annotations

import datetime
import subprocess
import sys
import textwrap

import pytest

from njax.errors import CheckpointError, InvalidRequest
from njax.text import sandbox
from njax.text.chat_template import ChatTemplate

HI = [{"role": "user", "content": "hi <b> é"}]


def render(source, messages=HI, tokens=None, **kwargs):
    return ChatTemplate(source, tokens).render(messages, **kwargs)


@pytest.mark.parametrize(
    "source, text",
    [
        ("  {% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{% for i in range(5) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("{{ messages[0].content | tojson }}", '"hi <b> é"'),
        ("{{ {'b': 1, 'a': '<é>'} | tojson(indent=1) }}", '{\n "b": 1,\n "a": "<é>"\n}'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":1}'),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        ("a{% generation %}b{% endgeneration %}c", "abc"),
        ("{{ bos_token }}|{{ eos_token }}|{{ pad_token }}", "<s>|</s>|"),
        ("{{ 'x' if tools is none else 'y' }}{{ add_generation_prompt }}", "xTrue"),
        ("{{ enable_thinking is defined }}", "False"),
        ("{% set ns = namespace(n=0) %}{% set ns.n = 3 %}{{ ns.n }}", "3"),
        ("{{ 'a' ~ 1 ~ none ~ ['b'] }}", "a1None['b']"),
        (
            "{{ ['a', 'b'] | join(', ') }} {{ messages | map(attribute='role') | join }}",
            "a, b user",
        ),
        ("{{ 'a-b' | replace('-', '+') }}{{ 'a-b'.replace('-', '+') }}", "a+ba+b"),
        ("{{ '%s=%5.2f' | format('x', 1.5) }} {{ '**{:>3}**'.format('y') }}", "x= 1.50 **  y**"),
        ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m('a') }}{{ m('b') | upper }}", "<a><B>"),
        ("{% set x %}a{{ 1 + 1 }}{% endset %}{{ x * 2 }}", "a2a2"),
        ("{% for m in messages[::-1] %}{{ loop.index0 }}{{ m['role'] }}{% endfor %}", "0user"),
        ("{{ messages[0].missing }}{{ 'a' in 'abc' }}", "True"),
    ],
)
def test_what_templates_rely_on(source, text):
    tokens = {"bos_token": "<s>", "eos_token": {"content": "</s>"}}
    assert render(source, tokens=tokens) == text


def test_strftime_now():
    assert render("{{ strftime_now('%Y') }}") == str(datetime.date.today().year)


def test_options():
    template = ChatTemplate("{{ enable_thinking }}{{ messages }}{{ bos_token }}{{ effort }}")
    assert template.options == {"enable_thinking", "effort"}
    assert render("{{ effort }}", effort="low") == "low"
    assert render("{{ effort is defined }}", effort=None) == "False"
    for name in ("messages", "raise_exception", "range"):
        with pytest.raises((InvalidRequest, TypeError)):
            template.render(HI, **{name: 1})


def test_named_templates():
    source = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "{{ tools | length }} tools"},
    ]
    template = ChatTemplate(source)
    assert template.render(HI) == template.render(HI, []) == "plain"
    assert template.render(HI, [{"name": "f"}]) == "1 tools"
    with pytest.raises(CheckpointError, match="default"):
        ChatTemplate([{"name": "other", "template": ""}])


@pytest.mark.parametrize("tools", [["f"], "f", {"name": "f"}, [None]])
def test_malformed_tools(tools):
    with pytest.raises(InvalidRequest, match="tools must be a list of objects"):
        render("x", tools=tools)


def test_the_templates_own_refusal_is_passed_on():
    with pytest.raises(InvalidRequest, match="refuses these messages: only one user") as error:
        render("{{ raise_exception('only one user') }}")
    assert error.value.param == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ undefined.attribute }}",
        "{{ messages[0].content + 1 }}",
        "{{ 1 / 0 }}",
        "{% include 'other' %}",
        "{{ none() }}",
        "{{ messages[0].content.encode('nope') }}",
    ],
)
def test_a_failing_template_is_a_clear_error(source):
    with pytest.raises(InvalidRequest, match="the chat template failed on these messages"):
        render(source)


@pytest.mark.parametrize(
    "source, what",
    [
        ("{% if %}", "line 1"),
        ("{{ messages | nofilter }}", "nofilter"),
        ("{{" + "(" * 5000 + ")" * 5000 + "}}", "RecursionError"),
        ("x" * (sandbox.MAX_SOURCE + 1), "characters"),
    ],
)
def test_a_broken_template_is_refused_when_loaded(source, what):
    with pytest.raises(CheckpointError, match=what):
        ChatTemplate(source)


ESCAPES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ messages | attr('__class__') | attr('__mro__') }}",
    "{{ (messages | map(attribute='__class__') | first).__name__ }}",
    "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "{{ '{x.__class__.__mro__}'.format_map({'x': 1}) }}",
    "{{ raise_exception.__globals__ }}",
    "{{ raise_exception.__globals__['__builtins__'] }}",
    "{{ strftime_now.__code__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os }}",
    "{{ self.__init__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ messages.append({}) }}",
    "{{ messages[0].update({'role': 'system'}) }}",
    "{{ messages[0].pop('role') }}",
    "{{ range.__class__ }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "{{ charge }}{{ environment }}{{ concatenate }}",
    "{{ caller.__globals__ }}",
    "{% set x = messages[0] %}{% set x.role = 'system' %}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_no_way_to_pythons_internals(source):
    messages = [{"role": "user", "content": "hi"}]
    try:
        text = render(source, messages)
    except (InvalidRequest, CheckpointError):
        return
    finally:
        assert messages == [{"role": "user", "content": "hi"}]
    assert not any(word in text for word in ("class", "module", "built", "<", "object"))


BOMBS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) if (range(99999) | list | length) > 99999 %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
    "{% set n = namespace(x=[]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ n.x }}",
    "{% set n = namespace(x=[]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ n.x | tojson }}",
    "{% set n = namespace(x=[]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
    "{{ n | string }}",
    "{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}",
    "{% for i in range(99999) %}" + "a" * 1000 + "{% endfor %}",
    "{{ 'a' * 10000000000 }}",
    "{{ [1] * 10000000000 }}",
    "{{ 10 ** 10000000000 }}",
    "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "{{ '%1000000000d' % 1 }}",
    "{{ '%*d' % (1000000000, 1) }}",
    "{{ '%1000000000d' | format(1) }}",
    "{{ '{:1000000000d}'.format(1) }}",
    "{{ '{:{}}'.format(1, 1000000000) }}",
    "{{ 'a' | center(1000000000) }}",
    "{{ 'a' | indent(1000000000, true) }}",
    "{{ [1] | batch(1000000000, 1) | list }}",
    "{{ 'a'.center(1000000000) }}",
    "{{ 'a'.ljust(1000000000) }}",
    "{{ '\t'.expandtabs(1000000000) }}",
    "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
    "{{ ('a' * 100000) | replace('a', 'b' * 100000) }}",
    "{{ ('a' * 100000) | replace(new='b' * 100000, old='a') }}",
    "{{ (['a' * 100000] * 100000) | join }}",
    "{{ ''.join(['a' * 100000] * 100000) }}",
    "{{ (1).to_bytes(10000000000, 'big') }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}",
    "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
]


@pytest.mark.parametrize("source", BOMBS)
def test_bombs_are_stopped(source, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_SECONDS", 0.2)
    with pytest.raises(InvalidRequest, match="the chat template was stopped"):
        render(source)


def test_bombs_take_little_memory():
    """In a process of its own, whose peak is the template's."""
    program = """
        import resource
        from njax.errors import InvalidRequest
        from njax.text.chat_template import ChatTemplate
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        grow = "{% for i in range(60) %}{% set n.x = GROW %}{% endfor %}{{ n.x }}"
        for how in ("n.x ~ n.x", "n.x + n.x", "n.x * 2", "n.x.replace('a', 'aa')", "[n.x, n.x]"):
            try:
                ChatTemplate("{% set n = namespace(x='a') %}" + grow.replace("GROW", how)).render(
                    [{"role": "user", "content": ""}]
                )
            except InvalidRequest:
                continue
            raise SystemExit(how)
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 400


def test_a_large_honest_prompt_passes():
    turns = [{"role": r, "content": "word " * 200} for r in ("user", "assistant")] * 1000
    text = render(
        "{% for m in messages %}{{ '<' + m.role + '>' ~ m.content | trim }}{% endfor %}", turns
    )
    assert len(text) > 1_900_000
