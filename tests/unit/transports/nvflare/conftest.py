from tests.support.homes import home as home
