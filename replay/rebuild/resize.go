package rebuild

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skein-feed/skein/projections"
)

// errWhole is of a projection whose generations hold all partitions.
var errWhole = errors.New("it is no projection of a node of a cluster, so it holds all partitions")

// Resize makes a projection hold other partitions. It makes the next generation, which holds them, beside the one that serves, and cuts
// over to it, as [Rebuild] does; [projections.Live.Run] must be running. Until then, and for ever if it fails or is interrupted, the
// generation that serves continues with its partitions. Views that are open keep theirs. The report is for people.
//
// A projection that is new, and holds no partition, is resized like any other, and so is one that is to hold none. One that holds the
// partitions already is left as it is.
func Resize(ctx context.Context, live *projections.Live, to projections.Partitions, subscribe SubscribeFunc, o Options) (
	report string, err error,
) {
	o = o.withDefaults()
	from := live.Holds()
	defer func() {
		if err != nil {
			err = fmt.Errorf("resize %s from %d partitions to %d: %w", live.Name(), from.Len(), to.Len(), err)
		}
	}()
	if !live.Partitioned() {
		return "", errWhole
	}
	if from == to {
		return fmt.Sprintf("it holds these %d partitions already", to.Len()), nil
	}
	if err := checkDisk(live, to, o); err != nil {
		return "", err
	}
	r := run{live: live, o: o, began: time.Now()}
	if r.next, err = live.BuildNext(ctx, func(dir string) error { return r.build(ctx, subscribe, dir, to) }); err != nil {
		return "", err
	}
	if report, err = r.all(ctx, subscribe); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d partitions in place of %d: ", to.Len(), from.Len()) + report, nil
}
