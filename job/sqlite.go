package job

import _ "modernc.org/sqlite" // the driver "sqlite" of database/sql
