package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skein-feed/skein/events/wait"
)

func TestWaitForCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, step := range []struct {
			d, took time.Duration
			want    error
		}{{0, 0, nil}, {time.Second, time.Second, nil}, {time.Hour, 59 * time.Second, context.DeadlineExceeded}, {-1, 0, context.DeadlineExceeded}} {
			began := time.Now()
			if err := wait.For(ctx, step.d); !errors.Is(err, step.want) || time.Since(began) != step.took {
				t.Errorf("%v: %v after %v", step.d, err, time.Since(began))
			}
		}
	})
}
