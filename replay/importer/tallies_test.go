package importer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"

	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// fakeCounters answers with counts of the events of a log. A test may set spoil to change counts,
// short to omit one, or err to fail.
type fakeCounters struct {
	skeinv1connect.CounterServiceClient

	taken []events.Event
	spoil func(key *skeinv1.CounterKey, c *skeinv1.Counters)
	short bool
	err   error
}

func (f *fakeCounters) BatchGetCounters(
	_ context.Context, req *connect.Request[skeinv1.BatchGetCountersRequest],
) (*connect.Response[skeinv1.BatchGetCountersResponse], error) {
	if f.err != nil {
		return nil, f.err
	}

	res := &skeinv1.BatchGetCountersResponse{}
	for _, key := range req.Msg.GetKeys() {
		c, likes := &skeinv1.Counters{}, map[string]bool{}
		for _, ev := range f.taken {
			switch {
			case ev.User != key.GetUserId() && ev.Item != key.GetItemId():
			case ev.Kind == events.Played:
				c.PlayCount++
			default:
				likes[ev.User] = true
			}
		}
		c.Reactions = []*skeinv1.ReactionCount{{Kind: "like", Count: uint32(len(likes))}}
		if f.spoil != nil {
			f.spoil(key, c)
		}
		res.Counters = append(res.Counters, c)
	}
	if f.short {
		res.Counters = res.GetCounters()[1:]
	}
	return connect.NewResponse(res), nil
}

// importAndCompareCounts imports a file of plays or likes, and compares it with the answers of a
// service.
func importAndCompareCounts(t *testing.T, kind Kind, text string, counters *fakeCounters) (*Comparison, []string, error) {
	t.Helper()
	l := newFakeLog(t)
	o := options(t, l, text)
	o.Kind, o.MaxRejects = kind, mustAllow(t, "2")
	report := mustRun(t, o)
	counters.taken = l.taken

	var told []string
	found, err := Compare(t.Context(), CompareOptions{
		Kind: kind, Path: o.Path, StartedAt: report.StartedAt, AtLeast: report.Position, Counters: counters,
		MaxRejects: o.MaxRejects,
		Difference: func(text string) { told = append(told, text) },
	})
	slices.Sort(told)
	return found, told, err
}

const somePlays = "user,item,time\nann,i1,2024-01-01\n" + "ann,i1,2024-01-01\nann,i2,2024-01-02\nbob,i1,2026-03-05\n" +
	"bob,bad id,2024-01-01\nbob,i3,soon\n"

func TestComparedCountsAreEqual(t *testing.T) {
	for kind, want := range map[Kind]Comparison{Plays: {Counts: 4, Entries: 6}, Reactions: {Counts: 2, Entries: 3}} {
		found, told, err := importAndCompareCounts(t, kind, somePlays, &fakeCounters{})
		if err != nil || len(told) > 0 || *found != want {
			t.Errorf("%s: got %+v, the differences %v and %v, expected %+v without differences", kind, found, told, err, want)
		}
	}

	var many strings.Builder
	many.WriteString("user,item\n")
	for i := range 2500 {
		fmt.Fprintf(&many, "u%d,i%d\n", i%7, i)
	}
	found, told, err := importAndCompareCounts(t, Plays, many.String(), &fakeCounters{})
	if want := (Comparison{Counts: 2507, Entries: 5000}); err != nil || len(told) > 0 || *found != want {
		t.Errorf("2500 plays: got %+v, the differences %v and %v, expected %+v without differences", found, told, err, want)
	}
}

func TestCompareFindsEveryDifferentCount(t *testing.T) {
	more := func(key *skeinv1.CounterKey, c *skeinv1.Counters) {
		if key.GetItemId() == "i1" || key.GetUserId() == "bob" {
			c.PlayCount++
			c.Reactions[0].Count--
		}
	}

	for kind, want := range map[Kind][]string{
		Plays:     {"plays by bob: the file has 1, skein has 2", "plays of i1: the file has 3, skein has 4"},
		Reactions: {"reactions to i1 with like: the file has 2, skein has 1"},
	} {
		found, told, err := importAndCompareCounts(t, kind, somePlays, &fakeCounters{spoil: more})
		if diff := cmp.Diff(want, told); diff != "" || err != nil || found.Differences() != uint64(len(want)) {
			t.Errorf("%s: got %+v and %v, and the differences (-want +got):\n%s", kind, found, err, diff)
		}
	}

	if _, _, err := importAndCompareCounts(t, Plays, somePlays, &fakeCounters{short: true}); err == nil || !strings.Contains(err.Error(), "3 counters for 4 keys") {
		t.Errorf("got %v, expected an error that a counter is missing", err)
	}
}
