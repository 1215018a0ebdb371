"""A conversation of the package `openai-agents` with two tools, over both of OpenAI's protocols."""

from __future__ import annotations

import asyncio

import agents
import openai
import pytest

from tests.server.conftest import MODEL

agents.set_tracing_disabled(True)
QUESTIONS = (
    ("Get the weather with city Oslo and days 3, please.", ("get_weather", "Oslo", 3)),
    ("Find the room with city Bergen, please.", ("find_room", "Bergen")),
)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "model",
    [agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel],
    ids=lambda m: m.__name__,
)
def test_two_tools(demo_server, model, stream):
    called: list[tuple] = []

    @agents.function_tool
    def get_weather(city: str, days: int) -> str:
        """Gets the weather.

        Args:
          city: The city
          days: The days
        """
        called.append(("get_weather", city, days))
        return "sunny"

    @agents.function_tool
    def find_room(city: str) -> str:
        """Finds the room.

        Args:
          city: The city
        """
        called.append(("find_room", city))
        return "12"

    async def converse() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{demo_server.url}/v1", api_key="none") as client:
            agent = agents.Agent(
                name="demo",
                tools=[get_weather, find_room],
                model=model(MODEL, client),
                model_settings=agents.ModelSettings(temperature=0, max_tokens=200),
            )
            history: list = []
            answers = []
            for question, _ in QUESTIONS:
                history.append({"role": "user", "content": question})
                if stream:
                    result = agents.Runner.run_streamed(agent, history)
                    async for _ in result.stream_events():
                        pass
                else:
                    result = await agents.Runner.run(agent, history)
                answers.append(result.final_output)
                history = result.to_input_list()
            return answers

    answers = asyncio.run(converse())
    assert called == [expected for _, expected in QUESTIONS]
    assert len(answers) == 2 and all(answers)
