"""`dpadapt audit`."""

from dpadapt.audit.battery import Case, mechanism_cases
from dpadapt.cli import main


def test_the_command_prints_a_table_and_fails_when_a_bug_is_not_detected(monkeypatch, capsys):
    case = mechanism_cases()[0]
    monkeypatch.setattr("dpadapt.audit.battery.mechanism_cases", lambda: [case])
    monkeypatch.setattr("dpadapt.audit.battery.estimator_cases", lambda: [])
    assert main(["audit", "--runs", "3000"]) == 0
    assert "Gaussian" in capsys.readouterr().out
    # A claim ten times too low is refuted; one ten times too high hides the planted bug.
    for factor in (0.1, 10.0):
        wrong = Case(**{**vars(case), "claimed": case.claimed * factor})
        monkeypatch.setattr("dpadapt.audit.battery.mechanism_cases", lambda wrong=wrong: [wrong])
        assert main(["audit", "--runs", "3000"]) == 1
        assert "NO" in capsys.readouterr().out
