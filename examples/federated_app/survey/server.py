"""The server's side: what is the error of each of two classifiers? Half of the people are asked about each."""

from dpadapt.hybrid.questions import LinearHypothesis, LossQuestion
from dpadapt.integrations.flower import server_app


def survey(agents):
    for hypothesis, share in ((LinearHypothesis([1.0, 0.5, 0.0]), 2), (LinearHypothesis([1.0, 0.0, 0.0]), 1)):
        answers = agents.ask(LossQuestion(hypothesis), agents.available // share)
        loss = f"{(1 + answers.mean()) / 2:.2f}" if len(answers) else "unknown"
        print(f"{len(answers)} answers of {agents.record[-1].people}, {agents.unanswered} refused so far, loss {loss}")


app = server_app(survey, epsilon=1.0, n_people=4, timeout=120.0)
