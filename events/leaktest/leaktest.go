// Package leaktest finds goroutines that tests leave behind, with [goleak]. goleak alone waits for
// less than half a second until goroutines have ended, which is too short on a busy machine.
package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long Find waits for goroutines that are about to end.
const patience = time.Minute

// Verify makes the test fail if goroutines are left that the options do not ignore, such as
// [goleak.IgnoreCurrent].
func Verify(t testing.TB, options ...goleak.Option) {
	t.Helper()
	if err := Find(options...); err != nil {
		t.Error("goroutines left behind:", err)
	}
}

// Find returns an error that names the goroutines that are left after a minute. It returns nil as
// soon as there are none.
func Find(options ...goleak.Option) (err error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		err = goleak.Find(options...)
		if err == nil {
			return nil
		}
	}
	return err
}
