"""How the operator of a site limits what the server writes into NVFlare's workspace.

In ``local/resources.json`` of the site, among its components::

    {"id": "app_deployer", "path": "coterie.transports.nvflare.deployer.PrivateDeployer"}

NVFlare's own deployer deletes the folder with the name of a job and unpacks the app there. Only then does it decide
whether the job may bring code. A server chooses names and moments, so it could delete the site's policy, replace the
app of a job that is starting, or have code run in that moment. NVFlare also searches the whole workspace for files of
its own settings by their names. So an app could bring such a file, which counts in all processes of the site.
"""

import os
import shutil
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.fl_constant import JobConstants
from nvflare.apis.fl_context import FLContext
from nvflare.apis.workspace import Workspace
from nvflare.fuel.utils.config import ConfigFormat
from nvflare.fuel.utils.zip_utils import unzip_all_from_bytes
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.private.fed.utils.app_authz import AppAuthzService
from nvflare.private.fed.utils.app_deployer import AppDeployer

from coterie.deployment.logs import LOGGER, format_frames, quote
from coterie.transports.nvflare.files import CONFIG, read_config

_SIGNED = frozenset({NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE})
"""Files that a signature of a job adds to each folder."""
_ALLOWED = frozenset({"config", f"config/{CONFIG}", "config/config_fed_server.json", *_SIGNED}) | {
    f"config/{name}" for name in _SIGNED
}
"""What an app without code consists of. A client does not read the part of the server."""
_ENDINGS = tuple(ConfigFormat.config_ext_formats())
"""NVFlare searches for a file of its settings by its name with each of these endings."""
_BRINGS_CODE = "this job brings code, and the policy of this site allows none"


class PrivateDeployer(AppDeployer):
    """Deploys a job once, into a folder that is not there yet, and no other files than those of a private job."""

    def __init__(self, *, allow_code: bool = False) -> None:
        """Deploy the jobs of a site. With ``allow_code``, NVFlare decides which jobs may bring code."""
        super().__init__()
        self._allow_code = allow_code
        self._asked: set[str] = set()
        self._turn = threading.Lock()

    def deploy(
        self,
        workspace: Workspace,
        job_id: str,
        job_meta: dict[str, Any],
        app_name: str,
        app_data: bytes,
        fl_ctx: FLContext,
    ) -> str | None:
        """Deploy an app, or return why it is refused. A job that was refused is not deployed later either.

        NVFlare sends the server what this returns, and the text of an exception, which may quote a file of this site.
        """
        try:
            refusal = self._reason_to_refuse(workspace, job_id, job_meta, app_data)
            if not refusal:
                refusal = _deploy(super().deploy, workspace, job_id, job_meta, app_name, app_data, fl_ctx)
        except Exception as error:
            LOGGER.warning("%s", format_frames(error))
            refusal = "this site could not deploy this job; its log says where"
        if refusal:
            LOGGER.warning("job %s: %s", quote(job_id), quote(refusal))
        return refusal

    def _reason_to_refuse(
        self, workspace: Workspace, job_id: str, job_meta: dict[str, Any], app_data: bytes
    ) -> str | None:
        folder = workspace.get_run_dir(job_id)
        with self._turn:  # NVFlare answers each request of the server in a thread of its own
            if folder in self._asked:
                return "this site was asked to deploy this job before, and deploys a job once"
            self._asked.add(folder)
        if job_meta.get(JobConstants.JOB_ID) != job_id:
            return "the meta data of this job name another job, whose modules NVFlare would let this one find"
        if os.path.lexists(folder):
            return "this site has a folder with the name of this job, and deletes none"
        if job_id.isidentifier():
            return "Python could import the folder of this job by its name"
        info = AppAuthzService.derive_local_app_info({}, job_meta, workspace.site_name)
        if info.get(AppValidationKey.BYOC) and not self._allow_code:
            return _BRINGS_CODE
        with TemporaryDirectory(prefix="coterie-app-") as unpacked:
            unzip_all_from_bytes(app_data, unpacked)
            read_config(Path(unpacked) / "config" / CONFIG)
            return self._reason_to_refuse_files(Path(unpacked))

    def _reason_to_refuse_files(self, unpacked: Path) -> str | None:
        for path in sorted(unpacked.rglob("*")):
            name = path.relative_to(unpacked).as_posix()
            if name in _ALLOWED:
                continue
            if name.split("/")[0] != "custom":
                LOGGER.warning("an app has %s", quote(name))
                return f"the app of this job has more than config/{CONFIG}, and code in the folder custom"
            if not self._allow_code:
                return _BRINGS_CODE
            if path.name.lower().endswith(_ENDINGS) and path.name not in _SIGNED:
                LOGGER.warning("an app has %s", quote(name))
                return f"this job's code has a file that NVFlare may take for its settings: {', '.join(_ENDINGS)}"
        return None


def _deploy(deploy: Any, workspace: Workspace, job_id: str, *app: Any) -> str | None:  # noqa: ANN401 - NVFlare has no types
    """Let NVFlare deploy an app; leave nothing of it if that fails, because NVFlare may start it nevertheless."""
    try:
        return deploy(workspace, job_id, *app)
    except Exception:
        shutil.rmtree(workspace.get_run_dir(job_id), ignore_errors=True)
        raise
