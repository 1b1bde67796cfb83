//go:build unix

package all_test

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
	"github.com/skein-feed/skein/projections/querycache"
	"github.com/skein-feed/skein/projections/store"
)

// costWorld makes the log that BenchmarkCost folds into every projection: one kind of event after
// the other.
type costWorld struct {
	random    *rand.Rand
	popular   *rand.Zipf
	followers map[string]int
	cursor    events.Cursor
	// follows and pins have the follows and pins so far, for events about them.
	follows, pins []events.Event
}

const (
	costUsers   = 20_000
	costFollows = 400_000
	costPins    = 20_000
	costPlays   = 400_000
	costLikes   = 200_000
	costOthers  = 100_000
)

func newCostWorld() *costWorld {
	r := rand.New(rand.NewPCG(1, 2))
	return &costWorld{
		random: r, popular: rand.NewZipf(r, 1.1, 10, costUsers-1), followers: map[string]int{},
		cursor: events.Cursor{Log: events.LogID{1}, Epoch: 1, LastTime: histories.Start},
	}
}

// user returns the id of a user, with 60 bits as in many products.
func (w *costWorld) user(n uint64) string { return strconv.FormatUint(n*0x9e3779b97f4a7c15>>4, 10) }

func (w *costWorld) anyone() string { return w.user(w.random.Uint64N(costUsers)) }

// envelopes returns envelopes with n events, 100 per envelope and one per millisecond.
func (w *costWorld) envelopes(n int, of func(i int) events.Event) (envs []*events.Envelope) {
	for i := 0; i < n; {
		env := &events.Envelope{}
		w.cursor.Seq++
		for ; i < n && len(env.Events) < 100; i++ {
			ev := of(i)
			w.cursor.LastTime += 1000
			ev.Seq = w.cursor.Seq
			ev.Slot = uint16(len(env.Events))
			ev.Time = w.cursor.LastTime
			env.Kinds |= events.Kinds(ev.Kind)
			env.Events = append(env.Events, ev)
		}
		env.Cursor = w.cursor
		envs = append(envs, env)
	}
	return envs
}

func (w *costWorld) follow(int) events.Event {
	ev := events.Event{Kind: events.UserFollowed, User: w.anyone(), Peer: w.user(w.popular.Uint64())}
	w.followers[ev.Peer]++
	w.follows = append(w.follows, ev)
	return ev
}

func (w *costWorld) pin(i int) events.Event {
	ev := events.Event{Kind: events.PinCreated, User: w.anyone(), Pin: "p" + strconv.Itoa(i), Item: "i" + strconv.Itoa(i)}
	w.pins = append(w.pins, ev)
	return ev
}

func (w *costWorld) play(int) events.Event {
	return events.Event{Kind: events.Played, User: w.anyone(), Item: "i" + strconv.Itoa(int(w.popular.Uint64()))}
}

func (w *costWorld) like(int) events.Event {
	return events.Event{Kind: events.Reacted, User: w.anyone(), Item: "i" + strconv.Itoa(int(w.popular.Uint64()))}
}

// save and bookmark are reactions that add no heat: of another kind, with the pin on which the user
// reacted, and of a private kind.
func (w *costWorld) save(i int) events.Event {
	ev := w.like(i)
	ev.Reaction = "save"
	ev.RepinUser = w.anyone()
	ev.RepinPin = ev.Item
	return ev
}

func (w *costWorld) bookmark(i int) events.Event {
	ev := w.like(i)
	ev.Reaction = "_bookmark"
	return ev
}

// settings sets the settings of a follow that exists.
func (w *costWorld) settings(i int) events.Event {
	f := w.follows[i%len(w.follows)]
	return events.Event{Kind: events.FollowSettingsSet, User: f.User, Peer: f.Peer, Settings: events.FollowSettings(1 + i%7)}
}

// mute mutes somebody for an hour.
func (w *costWorld) mute(int) events.Event {
	ev := events.Event{
		Kind: events.UserMuted, User: w.anyone(), Peer: w.user(w.popular.Uint64()), Until: w.cursor.LastTime + 3600_000_000,
	}
	for ev.Peer == ev.User {
		ev.Peer = w.anyone()
	}
	return ev
}

func (w *costWorld) hide(int) events.Event {
	return events.Event{Kind: events.ItemHidden, User: w.anyone(), Item: "i" + strconv.Itoa(int(w.popular.Uint64()))}
}

// repin is a pin that names a pin of another user.
func (w *costWorld) repin(i int) events.Event {
	pin := w.pins[w.random.IntN(len(w.pins))]
	return events.Event{
		Kind: events.PinCreated, User: w.anyone(), Pin: "r" + strconv.Itoa(i), Item: pin.Item,
		RepinUser: pin.User, RepinPin: pin.Pin,
	}
}

// edit gives a pin 40 bytes of attributes.
func (w *costWorld) edit(int) events.Event {
	pin := w.pins[w.random.IntN(len(w.pins))]
	attributes := make([]byte, 40)
	for i := range attributes {
		attributes[i] = byte(w.random.Uint32())
	}
	return events.Event{Kind: events.PinEdited, User: pin.User, Pin: pin.Pin, Attributes: attributes}
}

// BenchmarkCost reports how many rows and how many bytes of compacted tables an event of each kind
// adds to the store of each projection, and how much processor time that takes.
func BenchmarkCost(b *testing.B) {
	for _, p := range all.All(all.Settings{Cache: querycache.New(1 << 30)}) {
		b.Run(p.Name(), func(b *testing.B) {
			s, err := store.Open(store.Options{Dir: b.TempDir(), Projection: p})
			if err != nil {
				b.Fatal(err)
			}
			w := newCostWorld()
			deliveries := 0
			for _, phase := range []struct {
				name string
				kind events.Kind
				n    int
				of   func(int) events.Event
			}{
				{"follow", events.UserFollowed, costFollows, w.follow},
				{"pin", events.PinCreated, costPins, func(i int) events.Event {
					ev := w.pin(i)
					deliveries += w.followers[ev.User]
					return ev
				}},
				{"play", events.Played, costPlays, w.play},
				{"like", events.Reacted, costLikes, w.like},
				{"save", events.Reacted, costLikes, w.save},
				{"bookmark", events.Reacted, costLikes, w.bookmark},
				{"repin", events.PinCreated, costPins, w.repin},
				{"settings", events.FollowSettingsSet, costOthers, w.settings},
				{"mute", events.UserMuted, costOthers, w.mute},
				{"hide", events.ItemHidden, costOthers, w.hide},
				{"edit", events.PinEdited, costOthers, w.edit},
			} {
				if !slices.Contains(p.Kinds(), phase.kind) {
					// The projection does not read the events, but later ones are about them.
					w.envelopes(phase.n, phase.of)
					continue
				}

				// Pins are pushed to inboxes, which a page begins.
				for i := 0; p.Name() == "inbox" && phase.name == "pin" && i < costUsers; i++ {
					beginInbox(b, s, w.user(uint64(i)))
				}

				rows, bytes, cpu := costOf(b, s, w.envelopes(phase.n, phase.of))
				per := float64(phase.n)
				b.ReportMetric(rows/per, "rows/"+phase.name)
				b.ReportMetric(bytes/per, "B/"+phase.name)
				b.ReportMetric(cpu/per, "µs/"+phase.name)
				if phase.name == "pin" {
					b.ReportMetric(float64(deliveries)/per, "followers/pin")
				}
			}

			b.ReportMetric(0, "ns/op")
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// costOf folds envelopes and compacts the store. It returns the numbers of added rows and bytes,
// and the processor time in microseconds.
func costOf(b *testing.B, s *store.Store, envs []*events.Envelope) (rows, bytes, cpu float64) {
	b.Helper()
	rowsBefore, bytesBefore := costStored(b, s)

	began := costCPU(b)
	for len(envs) > 0 {
		n := min(64, len(envs))
		if err := s.Fold(envs[:n]); err != nil {
			b.Fatal(err)
		}
		envs = envs[n:]
	}

	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	cpu = float64((costCPU(b) - began).Microseconds())

	if err := s.Compact(b.Context()); err != nil {
		b.Fatal(err)
	}
	rowsAfter, bytesAfter := costStored(b, s)
	return float64(rowsAfter - rowsBefore), float64(bytesAfter - bytesBefore), cpu
}

// costStored returns the numbers of rows and of bytes of tables of a store.
func costStored(b *testing.B, s *store.Store) (rows, bytes int) {
	b.Helper()
	v, err := s.View()
	if err != nil {
		b.Fatal(err)
	}
	it := v.Iter(nil, nil)
	for it.Next() {
		rows++
	}
	if err := it.Close(); err != nil {
		b.Fatal(err)
	}
	if err := v.Close(); err != nil {
		b.Fatal(err)
	}

	err = filepath.WalkDir(s.Dir(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".sst") {
			return nil //nolint:nilerr // a table that is removed meanwhile counts no more
		}
		if info, err := entry.Info(); err == nil {
			bytes += int(info.Size())
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return rows, bytes
}

// costCPU returns the processor time of this process so far.
func costCPU(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
