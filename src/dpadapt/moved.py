"""New paths of the modules of version 0.1: an import from an old path fails with the new path in the message."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

# New path -> the modules of version 0.1 (below dpadapt) whose code it holds.
_NEW_HOME = {
    "benchmarks": "benchmarks",
    "benchmarks.adaptation.claims": "benchmarks.paper1_claims",
    "benchmarks.adaptation.figures": (
        "benchmarks.paper1_accuracy benchmarks.paper1_figures benchmarks.paper1_sentiment"
    ),
    "benchmarks.adaptation.nonprivate": "adaptation.baselines adaptation.validation benchmarks.paper1_nonprivate",
    "benchmarks.adaptation.privacy_and_speed": "benchmarks.paper1_privacy benchmarks.paper1_speed",
    "benchmarks.adaptation.run": "benchmarks.paper1",
    "benchmarks.adaptation.sets": "benchmarks.paper1_sets",
    "benchmarks.adaptation.show": "benchmarks.paper1_show",
    "benchmarks.adaptation.tuning": "benchmarks.paper1_tuning",
    "benchmarks.clustering.claims": "benchmarks.paper5_claims",
    "benchmarks.clustering.measure": "benchmarks.paper5_labelling benchmarks.paper5_measure benchmarks.paper5_scale",
    "benchmarks.clustering.run": "benchmarks.paper5",
    "benchmarks.clustering.sets": "benchmarks.paper5_sets",
    "benchmarks.clustering.show": "benchmarks.paper5_show",
    "benchmarks.data.convert_openml": "datasets.convert_openml",
    "benchmarks.data.convert_uci": "datasets.convert_uci",
    "benchmarks.data.loading": "datasets.fetch datasets.formats datasets.loading datasets.store",
    "benchmarks.data.measurements": "datasets.events datasets.images datasets.sensors",
    "benchmarks.data.people": "datasets.people datasets.reviews",
    "benchmarks.data.sources": "datasets.registry datasets.sources_other datasets.sources_tables",
    "benchmarks.hybrid.populations": "benchmarks.paper3_sets",
    "benchmarks.hybrid.reweigh": "benchmarks.paper3_str benchmarks.paper3_str_parity",
    "benchmarks.hybrid.reweigh_claims": "benchmarks.paper3_str_claims",
    "benchmarks.hybrid.run": "benchmarks.paper3",
    "benchmarks.hybrid.transfer": "benchmarks.paper3_transfer",
    "benchmarks.mirror.figure1": "benchmarks.paper2_figure1 benchmarks.paper2_oracle",
    "benchmarks.mirror.networks": "benchmarks.paper2_networks",
    "benchmarks.mirror.real": "benchmarks.paper2_real",
    "benchmarks.mirror.run": "benchmarks.paper2",
    "benchmarks.mirror.theory": "benchmarks.paper2_theory",
    "benchmarks.pages": (
        "benchmarks.pages report.adaptation report.benchmark report.clustering report.heatmap report.paper"
    ),
    "benchmarks.performance.networks": "benchmarks.networks",
    "benchmarks.performance.peers": "benchmarks.peers",
    "benchmarks.performance.people": "benchmarks.people",
    "benchmarks.performance.performance": "benchmarks.performance benchmarks.steps",
    "benchmarks.representation.probe": "benchmarks.paper4_probe benchmarks.paper4_probe_measure",
    "benchmarks.representation.probe_sets": "benchmarks.paper4_probe_sets",
    "benchmarks.representation.run": "benchmarks.paper4",
    "benchmarks.representation.subspace": "benchmarks.paper4_subspace",
    "benchmarks.running": "benchmarks.command benchmarks.pieces",
    "benchmarks.transfer.common": "benchmarks.transfer_common",
    "benchmarks.transfer.fits": "benchmarks.transfer_rivals",
    "benchmarks.transfer.run": "benchmarks.transfer",
    "benchmarks.transfer.sets": "benchmarks.transfer_classification benchmarks.transfer_regression",
    "benchmarks.transfer.tables": "benchmarks.transfer_tables",
    "dpadapt.accounting.closed_forms": "accounting.conversions accounting.gaussian",
    "dpadapt.accounting.ledger": "accounting.run",
    "dpadapt.accounting.receipt": "accounting.entry",
    "dpadapt.audit.battery": "audit.cases audit.run",
    "dpadapt.audit.measured_epsilon": "audit.limits audit.two_worlds",
    "dpadapt.checks": "_validate",
    "dpadapt.cli.app": "cli._app",
    "dpadapt.cli.audit": "audit.__main__",
    "dpadapt.cli.before_spending": "cli.forecast cli.rehearse",
    "dpadapt.cli.fit": "cli._agents cli._choosing cli._fitting",
    "dpadapt.cli.options": "cli._options",
    "dpadapt.cli.inputs": "cli._public",
    "dpadapt.clustering.estimator": "clustering.labelling clustering.private",
    "dpadapt.clustering.inference": (
        "clustering.choice clustering.evidence clustering.outlook clustering.posterior clustering.spread "
        "clustering.survival"
    ),
    "dpadapt.clustering.public_cells": "clustering.cells clustering.shares clustering.surroundings",
    "dpadapt.clustering.releases": "clustering.sources clustering.stages",
    "dpadapt.clustering.solver": "clustering.distances clustering.faster_pam clustering.greedy",
    "dpadapt.datasets.domains": "datasets.provenance",
    "dpadapt.datasets.synthetic": "datasets.gaussian_pairs datasets.shared_subspace",
    "dpadapt.demo.panels": "cli._centres cli._digits cli._people",
    "dpadapt.demo.side_by_side": "cli._side_by_side",
    "dpadapt.hybrid.agents": "hybrid.reception hybrid.simulated",
    "dpadapt.hybrid.classifier_fit": (
        "hybrid.correction hybrid.hybrid_stages hybrid.local_only hybrid.people_moments hybrid.recalibration "
        "hybrid.switching"
    ),
    "dpadapt.hybrid.classifier_plan": "hybrid.hybrid_plan",
    "dpadapt.hybrid.curator_releases": "hybrid.curator hybrid.tilt",
    "dpadapt.hybrid.device": "hybrid.wire",
    "dpadapt.hybrid.mapped_questions": "hybrid.public_map hybrid.score_question hybrid.vector_question",
    "dpadapt.hybrid.questions": "hybrid.hypotheses",
    "dpadapt.learning.estimator": "learning.base learning.label_set learning.linear_classifier",
    "dpadapt.learning.descent": "learning.centred_clipping learning.losses",
    "dpadapt.learning.preparation": "learning.geometry learning.public_model learning.remembered learning.spectrum",
    "dpadapt.learning.shrinkage": "learning.regret learning.waterfill",
    "dpadapt.learning.task_model": "representation.task_model representation.task_prior",
    "dpadapt.learning.task_subspaces": (
        "representation.angles representation.em representation.moments representation.task_subspaces "
        "representation.tasks"
    ),
    "dpadapt.mechanisms.bounded": "mechanisms.bounded_choices",
    "dpadapt.mechanisms.bounded_neighbours": "mechanisms.bounded_covers",
    "dpadapt.mechanisms.choices": "mechanisms.randomized_response mechanisms.selection",
    "dpadapt.mechanisms.mechanism": "mechanisms.events mechanisms.plan",
    "dpadapt.mechanisms.noise": "mechanisms.gaussian mechanisms.laplace",
    "dpadapt.mechanisms.parity": "mechanisms.bounded_parity",
    "dpadapt.networks.fine_tuning": "networks.three_ways",
    "dpadapt.networks.ghost_clipping": "networks.ghost networks.layers",
    "dpadapt.networks.private_training": "networks.mixing networks.progress",
    "dpadapt.networks.public_training": "networks.temperature networks.tensors",
    "dpadapt.networks.resumable_training": "networks.checkpoint networks.session",
    "dpadapt.networks.row_gradients": "networks.gradient networks.rows_loss networks.vmapped",
    "dpadapt.papers.adaptation": "adaptation",
    "dpadapt.papers.adaptation.bounds": "adaptation.bounds adaptation.discrepancy",
    "dpadapt.papers.adaptation.cnvx": "adaptation.cnvx adaptation.cnvx_descent",
    "dpadapt.papers.adaptation.matching": "adaptation.matching adaptation.matching_weights adaptation.private_dm",
    "dpadapt.papers.adaptation.ncnvx": "adaptation.ncnvx adaptation.ncnvx_descent",
    "dpadapt.papers.adaptation.noise": "adaptation.noise",
    "dpadapt.papers.adaptation.noisy_sgd": "adaptation.noisy_sgd",
    "dpadapt.papers.adaptation.preparation": "adaptation.preparation adaptation.weighted",
    "dpadapt.papers.adaptation.private_statistics": (
        "adaptation.private_mixture adaptation.private_moments adaptation.reverse"
    ),
    "dpadapt.papers.adaptation.problem": "adaptation.exact adaptation.problem adaptation.smooth_losses",
    "dpadapt.papers.adaptation.sbest": "adaptation.sbest",
    "dpadapt.papers.adaptation.unprotected": "adaptation.mixtures adaptation.unprotected",
    "dpadapt.papers.mirror": "mirror",
    "dpadapt.papers.mirror.base": "mirror.base mirror.descent mirror.noise",
    "dpadapt.papers.mirror.bounds": "mirror.bounds mirror.width",
    "dpadapt.papers.mirror.estimators": "mirror.classification mirror.regression",
    "dpadapt.papers.mirror.gradient_descent": "mirror.gradient_descent",
    "dpadapt.papers.mirror.maps": "mirror.logistic_map mirror.maps",
    "dpadapt.papers.mirror.mean": "mirror.mean",
    "dpadapt.papers.mirror.public_fit": "mirror.coordinates mirror.defaults mirror.public_fit",
    "dpadapt.papers.reweigh.learners": (
        "hybrid.learner hybrid.learner_descent hybrid.learner_online hybrid.learner_separator"
    ),
    "dpadapt.papers.reweigh.learners_discrete": "hybrid.learner_finite hybrid.learner_parity hybrid.learner_sparse",
    "dpadapt.papers.reweigh.planning": "hybrid.planning",
    "dpadapt.papers.reweigh.reweigh": "hybrid.reweigh",
    "dpadapt.papers.reweigh.rounds": "hybrid.rounds hybrid.weights",
    "dpadapt.papers.source_target.baselines": "clustering.akm clustering.baselines",
    "dpadapt.papers.source_target.bounds": "clustering.bounds clustering.delta_t",
    "dpadapt.papers.source_target.proxies": "clustering.coresets clustering.nas clustering.nna clustering.proxies",
    "dpadapt.papers.subspace.bounds": "representation.bounds",
    "dpadapt.papers.subspace.probes": (
        "representation.probe_descent representation.probe_least_squares representation.probe_rows"
    ),
    "dpadapt.papers.subspace.solvers": "representation.ambssgd representation.dpsgd representation.projected",
    "dpadapt.report.before_spending": "report.forecast report.rehearsal",
    "dpadapt.report.contributions": "report.brought report.helped report.compare",
    "dpadapt.report.summarise": "report.guarantee",
    "dpadapt.representation.ready_encoders": "representation.encoders_images representation.encoders_text",
    "dpadapt.representation.subspace_regression": "representation.regression representation.task_descent",
    "dpadapt.tables.schema": "tables.infer tables.writing",
    "dpadapt.transfer.classification": "learning.transfer_classification",
    "dpadapt.transfer.classification_fit": "learning.transfer_classification_descent",
    "dpadapt.transfer.classification_plan": (
        "learning.transfer_classification_plan learning.transfer_classification_public"
    ),
    "dpadapt.transfer.forecast": (
        "learning.forecast learning.transfer_classification_forecast learning.transfer_forecast"
    ),
    "dpadapt.transfer.gate": "learning.loss_gate learning.transfer_gate",
    "dpadapt.transfer.regression": "learning.transfer_regression",
    "dpadapt.transfer.regression_fit": "learning.same_population learning.transfer_shifted learning.transfer_stage",
    "dpadapt.transfer.regression_plan": "learning.clip_bias learning.transfer_geometry learning.transfer_plan",
    "dpadapt.transfer.rehearsal": "learning.rehearsal",
}
MOVED = {f"dpadapt.{old}": new for new, olds in _NEW_HOME.items() for old in olds.split()}


class _OldPaths:
    """The last finder in `sys.meta_path`: Python calls it only for modules that no other finder has found."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise an error that names the new path if the module has moved; otherwise return None."""
        if name not in MOVED:
            return None
        new = MOVED[name]
        outside = "" if new.startswith("dpadapt.") else ", which is in the repository but not in the installed package"
        raise ModuleNotFoundError(f"{name} has moved to {new}{outside}. Import it from there.", name=name)


def report_moves() -> None:
    """Make imports from old paths fail with the new path in the message."""
    if _OldPaths not in sys.meta_path:
        sys.meta_path.append(_OldPaths)
