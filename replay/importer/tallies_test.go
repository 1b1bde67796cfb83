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
// omitFirst to omit the first counters of an answer, or err to fail.
type fakeCounters struct {
	skeinv1connect.CounterServiceClient

	appended  []events.Event
	spoil     func(key *skeinv1.CounterKey, c *skeinv1.Counters)
	omitFirst bool
	err       error
}

func (f *fakeCounters) BatchGetCounters(
	_ context.Context, req *connect.Request[skeinv1.BatchGetCountersRequest],
) (*connect.Response[skeinv1.BatchGetCountersResponse], error) {
	if f.err != nil {
		return nil, f.err
	}

	res := &skeinv1.BatchGetCountersResponse{}
	for _, key := range req.Msg.GetKeys() {
		c := &skeinv1.Counters{}
		likingUsers := map[string]bool{}
		for _, ev := range f.appended {
			switch {
			case ev.User != key.GetUserId() && ev.Item != key.GetItemId():
			case ev.Kind == events.Played:
				c.PlayCount++
			default:
				likingUsers[ev.User] = true
			}
		}
		c.Reactions = []*skeinv1.ReactionCount{{Kind: "like", Count: uint32(len(likingUsers))}}

		if f.spoil != nil {
			f.spoil(key, c)
		}
		res.Counters = append(res.Counters, c)
	}
	if f.omitFirst {
		res.Counters = res.GetCounters()[1:]
	}
	return connect.NewResponse(res), nil
}

// importAndCompareCounts imports a file of plays or likes, and compares it with the answers of a
// service. It returns the result and the differences, sorted.
func importAndCompareCounts(t *testing.T, kind Kind, text string, counters *fakeCounters) (*Comparison, []string, error) {
	t.Helper()
	l := newFakeLog(t)
	o := options(t, l, text)
	o.Kind, o.MaxRejects = kind, mustAllow(t, "2")
	report := mustRun(t, o)
	counters.appended = l.appended

	var differences []string
	found, err := Compare(t.Context(), CompareOptions{
		Kind: kind, Path: o.Path, StartedAt: report.StartedAt, AtLeast: report.Position, Counters: counters,
		MaxRejects: o.MaxRejects,
		Difference: func(text string) { differences = append(differences, text) },
	})
	slices.Sort(differences)
	return found, differences, err
}

const somePlays = "user,item,time\n" +
	"ann,i1,2024-01-01\n" + "ann,i1,2024-01-01\n" + // the same play twice
	"ann,i2,2024-01-02\nbob,i1,2026-03-05\n" +
	"bob,bad id,2024-01-01\nbob,i3,soon\n"

func TestComparedCountsAreEqual(t *testing.T) {
	for kind, want := range map[Kind]Comparison{Plays: {Counts: 4, Entries: 6}, Reactions: {Counts: 2, Entries: 3}} {
		found, differences, err := importAndCompareCounts(t, kind, somePlays, &fakeCounters{})
		if err != nil || len(differences) > 0 || *found != want {
			t.Errorf("%s: got %+v, the differences %v and %v, expected %+v without differences", kind, found, differences, err, want)
		}
	}

	var many strings.Builder
	many.WriteString("user,item\n")
	for i := range 2500 {
		fmt.Fprintf(&many, "u%d,i%d\n", i%7, i)
	}
	found, differences, err := importAndCompareCounts(t, Plays, many.String(), &fakeCounters{})
	if want := (Comparison{Counts: 2507, Entries: 5000}); err != nil || len(differences) > 0 || *found != want {
		t.Errorf("2500 plays: got %+v, the differences %v and %v, expected %+v without differences", found, differences, err, want)
	}
}

func TestCompareFindsEveryDifferentCount(t *testing.T) {
	change := func(key *skeinv1.CounterKey, c *skeinv1.Counters) {
		if key.GetItemId() == "i1" || key.GetUserId() == "bob" {
			c.PlayCount++
			c.Reactions[0].Count--
		}
	}

	for kind, want := range map[Kind][]string{
		Plays:     {"plays by bob: the file has 1, skein has 2", "plays of i1: the file has 3, skein has 4"},
		Reactions: {"reactions to i1 with like: the file has 2, skein has 1"},
	} {
		found, differences, err := importAndCompareCounts(t, kind, somePlays, &fakeCounters{spoil: change})
		if diff := cmp.Diff(want, differences); diff != "" || err != nil || found.Differences() != uint64(len(want)) {
			t.Errorf("%s: got %+v and %v, and the differences (-want +got):\n%s", kind, found, err, diff)
		}
	}

	_, _, err := importAndCompareCounts(t, Plays, somePlays, &fakeCounters{omitFirst: true})
	if err == nil || !strings.Contains(err.Error(), "3 counters for 4 keys") {
		t.Errorf("a counter is missing: got %v, expected an error with %q", err, "3 counters for 4 keys")
	}
}
