//go:build race

package rebuild_test

import "time"

// maxPause is not what is promised: under the race detector a fold takes some twenty times as long.
const maxPause = time.Second
