package inbox

import (
	"encoding/binary"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections"
)

const day = 24 * 3600 * 1_000_000

// The horizon is the log time less the feed window, rounded down. No inbox reaches below it. It is a row of the store, so that queries need
// not be told the window, and it moves in steps, so that it is seldom written.

const horizonSteps = 8

var horizonKey = projections.AppendPrefix(nil, projections.StoreShard, tagHorizon)

func readHorizon(r projections.Reader) (events.Micros, error) {
	row, ok, err := r.Get(horizonKey)
	if err != nil || !ok {
		return 0, err
	}
	if len(row) != 8 {
		return 0, errRow("horizon", row)
	}
	return events.Micros(binary.BigEndian.Uint64(row)), nil
}

// Tick moves the horizon.
func (f *Inbox) Tick(now events.Micros, b *projections.Batch) error {
	if f.horizonOf != b {
		var err error
		if f.horizon, err = readHorizon(b); err != nil {
			return err
		}
		f.horizonOf = b
	}
	window := events.Micros(f.settings.Window.Microseconds())
	step := min(max(window/horizonSteps, 1), day)
	horizon := max(now-window, 0) / step * step
	if horizon <= f.horizon {
		return nil
	}
	f.horizon = horizon
	b.Set(horizonKey, binary.BigEndian.AppendUint64(nil, uint64(horizon)))
	return nil
}
