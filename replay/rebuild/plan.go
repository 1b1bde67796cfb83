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

// assumedRate is the rate of a rebuild, in bytes of the log a second, until one was measured.
const assumedRate = 10 << 20

// Log is what a plan must know of the log.
type Log struct {
	// Head is its last sequence, Bytes its size, archive included.
	Head, Bytes uint64
	// Rate is how many bytes of it are folded in a second; 0 means as is assumed of a small machine.
	Rate float64
	// Pace is that of the rebuild.
	Pace replay.Pace
}

// Step is a projection that would be rebuilt.
type Step struct {
	// Name is that of the projection, Generation the one that serves now.
	Name       string
	Generation uint32
	// Why says what is wrong with that, in words; Answers reports whether it serves meanwhile, from where it stands.
	Why     string
	Answers bool
	// Envelopes are to be folded, in about Time.
	Envelopes uint64
	Time      time.Duration
	// Need is how much disk that takes, Free how much there is, in bytes.
	Need, Free uint64
}

// Plan lists the projections that do not continue and would be rebuilt.
func Plan(lives []*live.Live, log Log) (steps []Step, err error) {
	rate := log.Rate
	if rate <= 0 {
		rate = assumedRate
	}
	if share := log.Pace.Share; share > 0 && share < 1 {
		rate *= share
	}
	for _, serving := range lives {
		st := serving.Status()
		if st.State != store.Outdated && !st.Damaged {
			continue
		}
		need, free, err := needed(serving, serving.Holds(), log.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", serving.Name(), err)
		}
		s := Step{
			Name: serving.Name(), Generation: st.Generation, Answers: st.Answers(), Envelopes: log.Head,
			Time: time.Duration(float64(log.Bytes) / rate * float64(time.Second)).Round(time.Second),
			Need: need, Free: free,
		}
		if st.Error != nil {
			s.Why = st.Error.Error()
		}
		steps = append(steps, s)
	}
	return steps, nil
}

// String tells a person, on one line.
func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s generation %d: %s: to be rebuilt from %d envelopes in about %v, %s of disk", s.Name, s.Generation, s.Why,
		s.Envelopes, s.Time, events.FormatSize(s.Need))
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
