package leaktest

import (
	"testing"
	"time"
)

// TestFindWaitsForGoroutinesThatEnd checks that a goroutine that ends later than goleak waits is
// not a leak.
func TestFindWaitsForGoroutinesThatEnd(t *testing.T) {
	ended := make(chan struct{})
	time.AfterFunc(time.Second, func() { close(ended) })
	go func() { <-ended }()

	if err := Find(); err != nil {
		t.Errorf("got %v, want no goroutines left behind", err)
	}
}
