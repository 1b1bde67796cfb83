//go:build !race

package rebuild_test

import "time"

// maxPause is how long a cut-over may stop the fold.
const maxPause = 50 * time.Millisecond
