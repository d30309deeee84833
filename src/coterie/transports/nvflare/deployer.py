"""How the operator of a site limits what the server writes into NVFlare's workspace.

In ``local/resources.json`` of the site, among its components::

    {"id": "app_deployer", "path": "coterie.transports.nvflare.deployer.PrivateDeployer"}

NVFlare's own deployer deletes the folder with the name of a job and unpacks the app there. Only then does it decide
whether the job may bring code. A server chooses names and moments, so it could delete the site's policy, replace the
app of a job that is starting, or have code run in that moment.
"""

import os
import threading
from tempfile import TemporaryDirectory
from typing import Any

from nvflare.apis.app_validation import AppValidationKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.workspace import Workspace
from nvflare.fuel.utils.zip_utils import unzip_all_from_bytes
from nvflare.private.fed.utils.app_authz import AppAuthzService
from nvflare.private.fed.utils.app_deployer import AppDeployer

from coterie.deployment.logs import LOGGER, quote


class PrivateDeployer(AppDeployer):
    """Deploys a job once, into a folder that is not there yet, and none that brings code."""

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
        """Deploy an app, or return why it is refused. A job that was refused is not deployed later either."""
        refusal = self._reason_to_refuse(workspace, job_id, job_meta, app_data)
        if refusal:
            LOGGER.warning("job %s: %s", quote(job_id), refusal)
            return refusal
        return super().deploy(workspace, job_id, job_meta, app_name, app_data, fl_ctx)

    def _reason_to_refuse(
        self, workspace: Workspace, job_id: str, job_meta: dict[str, Any], app_data: bytes
    ) -> str | None:
        folder = workspace.get_run_dir(job_id)
        with self._turn:  # NVFlare answers each request of the server in a thread of its own
            if folder in self._asked:
                return "this site was asked to deploy this job before, and deploys a job once"
            self._asked.add(folder)
        if os.path.lexists(folder):
            return "this site has a folder with the name of this job, and deletes none"
        if self._allow_code:
            return None
        with TemporaryDirectory(prefix="coterie-app-") as unpacked:
            unzip_all_from_bytes(app_data, unpacked)
            wrong, found = AppAuthzService.validate_app(unpacked)
        if wrong:
            return str(wrong)
        if AppAuthzService.derive_local_app_info(found, job_meta, workspace.site_name).get(AppValidationKey.BYOC):
            return "this job brings code, and the policy of this site allows none"
        return None
