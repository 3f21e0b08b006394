"""Deploy files: YAML in, a checked Deployment out, and from there to the engine's stages or a printed plan."""

from omni_serve.deploy.load import BUILTIN, DeployFileError, load, load_builtin, loads
from omni_serve.deploy.model import Deployment, Edge, Offload, Server, Stage, Weights
from omni_serve.deploy.plan import Plan, plan, show
from omni_serve.deploy.specs import instructions, models, specs

__all__ = [
    "BUILTIN",
    "DeployFileError",
    "Deployment",
    "Edge",
    "Offload",
    "Plan",
    "Server",
    "Stage",
    "Weights",
    "instructions",
    "load",
    "load_builtin",
    "loads",
    "models",
    "plan",
    "show",
    "specs",
]
