package rebuild

import (
	"fmt"
	"strings"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/live"
	"github.com/skein-feed/skein/projections/store"
	"github.com/skein-feed/skein/replay"
)

// assumedBytesPerSecond is how many bytes of the log a rebuild is assumed to read per second, as
// long as none was measured.
const assumedBytesPerSecond = 10 << 20

// Log is what Plan must know of the log and of the rebuilds.
type Log struct {
	// Head is the last sequence of the log. Bytes is its size, including the archive.
	Head, Bytes uint64
	// Rate is how many bytes of the log a rebuild reads per second; 0 means the rate that is
	// assumed of a small machine.
	Rate float64
	// Pace is the pace of the rebuilds.
	Pace replay.Pace
}

// Step describes the rebuild of one projection in a plan.
type Step struct {
	// Name is the name of the projection. Generation is the one that serves now.
	Name       string
	Generation uint32
	// Reason says in words what is wrong with that generation.
	Reason string
	// Answers reports whether that generation answers queries until the rebuild is done, from the
	// position at which it has stopped.
	Answers bool
	// Envelopes is the number of envelopes that the rebuild must read. Time is about how long that
	// takes.
	Envelopes uint64
	Time      time.Duration
	// Need is how many bytes of disk the rebuild takes. Free is how many are free.
	Need, Free uint64
}

// Plan returns the rebuilds of those projections that do not follow the log any more, because they
// are outdated or damaged.
func Plan(lives []*live.Live, log Log) (steps []Step, err error) {
	rate := log.Rate
	if rate <= 0 {
		rate = assumedBytesPerSecond
	}
	if share := log.Pace.Share; share > 0 && share < 1 {
		rate *= share
	}

	for _, serving := range lives {
		st := serving.Status()
		if st.State != store.Outdated && !st.Damaged {
			continue
		}

		need, free, err := estimateDisk(serving, serving.Holds(), log.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", serving.Name(), err)
		}
		s := Step{
			Name:       serving.Name(),
			Generation: st.Generation,
			Answers:    st.Answers(),
			Envelopes:  log.Head,
			Time:       time.Duration(float64(log.Bytes) / rate * float64(time.Second)).Round(time.Second),
			Need:       need,
			Free:       free,
		}
		if st.Error != nil {
			s.Reason = st.Error.Error()
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// String describes the step to a person, on one line.
func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s generation %d: %s: to be rebuilt from %d envelopes in about %v, %s of disk",
		s.Name, s.Generation, s.Reason, s.Envelopes, s.Time, events.FormatSize(s.Need))
	if s.Need > s.Free {
		fmt.Fprintf(&b, ", of which only %s are free", events.FormatSize(s.Free))
	}
	if s.Answers {
		b.WriteString("; it answers from where it stands until then")
	} else {
		b.WriteString("; it answers nothing until then")
	}
	return b.String()
}
