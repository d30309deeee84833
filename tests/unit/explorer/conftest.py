from tests.support.explorer import explorer as explorer
