"""Answer the model's questions and review its plans with typed answers.

Prints:
    Which one? A or B: B
    the plan says: 1. Do it.
    the mode is now acceptEdits
"""

import asyncio

from parley import Answers, Client, Options, Plan, PlanDecision, Questions, SystemMessage

ASKS = """call AskUserQuestion {"questions": [{"question": "Which one?", "header": "Pick", "multiSelect": false, \
"options": [{"label": "A", "description": "the first"}, {"label": "B", "description": "the second"}]}]}
say So be it."""
PLANS = """call ExitPlanMode {"plan": "1. Do it."}
say Started."""


async def choose(asked: Questions) -> Answers:
    [question] = asked.questions
    labels = [choice.label for choice in question.choices]
    print(f"{question.text} {' or '.join(labels)}: {labels[1]}")
    return asked.answer({question.text: labels[1]})


async def review(plan: Plan) -> PlanDecision:
    print("the plan says:", plan.text)
    return plan.approve(mode="acceptEdits")


async def main() -> None:
    options = Options(model="offline", permission_mode="plan", on_question=choose, on_plan=review)
    async with Client(options) as client:
        await client.run(ASKS)
        await client.run(PLANS)
        async for message in await client.ask("say On with it."):
            if isinstance(message, SystemMessage) and message.subtype == "init":
                print("the mode is now", message.data["permissionMode"])


asyncio.run(main())
