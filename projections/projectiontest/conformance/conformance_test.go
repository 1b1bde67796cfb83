package conformance

import (
	"fmt"
	"strings"
	"testing"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/events/testmain"
	"github.com/skein-feed/skein/projections"
	"github.com/skein-feed/skein/projections/all"
	"github.com/skein-feed/skein/projections/inbox"
	"github.com/skein-feed/skein/projections/notifications"
	"github.com/skein-feed/skein/projections/projectiontest/histories"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// smallSettings returns settings with which generated histories cause what otherwise takes years or
// millions of users.
func smallSettings() all.Settings {
	small := inbox.DefaultSettings()
	small.Threshold = 0
	small.Keep = 3
	return all.Settings{Inbox: small, Notifications: notifications.Settings{Keep: 5}}
}

// TestAllProjectionsConform runs the suite for the list of all projections.
func TestAllProjectionsConform(t *testing.T) {
	settings := smallSettings()
	seeds := 4
	if testing.Short() {
		seeds = 1
	}
	var caseHistories []History
	for seed := range seeds {
		caseHistories = append(caseHistories, History{
			Name:      fmt.Sprintf("seed %d", seed),
			Envelopes: histories.Envelopes(histories.Fixed(uint64(seed), 400)),
		})
	}
	caseHistories = append(caseHistories,
		History{Name: "feeds", Envelopes: histories.Envelopes(histories.FixedFeeds(0, 300))},
		History{Name: "plays", Envelopes: histories.Envelopes(histories.FixedPlays(0, 300))},
		History{Name: "notifications", Envelopes: histories.Envelopes(histories.FixedNotifications(0, 300))},
	)

	// The golden files are older than some histories: that of the graph is older than feeds, and
	// that of inbox is older than plays.
	last := len(caseHistories) - 1
	pinned := map[string]int{"inbox": last - 2, "seen": last - 1, "counters": last - 1, "notifications": last}

	for i, p := range all.All(settings) {
		t.Run(p.Name(), func(t *testing.T) {
			r, ok := tagRanges[p.Name()]
			if !ok {
				t.Fatal("the projection is not in tagRanges, want a range of tags")
			}
			Run(t, Case{
				New:  func() projections.Projection { return all.All(settings)[i] },
				Tags: r, Histories: caseHistories,
				Golden: "testdata/" + p.Name() + ".golden", Pinned: pinned[p.Name()],
			})
		})
	}
}

// TestPushingInboxConforms runs the suite for inboxes to which pins are pushed. In the list of all
// projections, every owner is pulled.
func TestPushingInboxConforms(t *testing.T) {
	set := inbox.DefaultSettings()
	set.Keep = 3
	Run(t, Case{
		New:  func() projections.Projection { return inbox.New(set) },
		Tags: tagRanges["inbox"],
		Histories: []History{
			{Name: "feeds", Envelopes: histories.Envelopes(histories.FixedFeeds(0, 300))},
			{Name: "more feeds", Envelopes: histories.Envelopes(histories.FixedFeeds(1, 300))},
		},
	})
}

// TestNamesAndTagsAreUnique checks that no two projections have the same name or tag, nor a tag of
// the runtime.
func TestNamesAndTagsAreUnique(t *testing.T) {
	names := map[string]bool{}
	for _, p := range all.All(all.Settings{}) {
		if names[p.Name()] {
			t.Errorf("two projections have the name %s, want one", p.Name())
		}
		names[p.Name()] = true
	}

	owner := map[projections.Tag]string{}
	for tag := projections.FirstRuntimeTag; tag <= projections.LastRuntimeTag; tag++ {
		owner[tag] = "the runtime"
	}
	for name, r := range tagRanges {
		for tag := r.First; tag <= r.Last; tag++ {
			if owner[tag] != "" {
				t.Errorf("tag %#x belongs to %s and %s, want one of them", tag, owner[tag], name)
			}
			owner[tag] = name
		}
	}
}

// failureRecorder is a testing.TB that records failures.
type failureRecorder struct {
	testing.TB
	failures []string
}

func (r *failureRecorder) Helper() {}

func (r *failureRecorder) Error(args ...any) { r.failures = append(r.failures, fmt.Sprint(args...)) }

func (r *failureRecorder) Errorf(format string, args ...any) { r.Error(fmt.Sprintf(format, args...)) }

func (r *failureRecorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }

// TestCheckKeysFindsFaults checks that CheckKeys reports each kind of fault, and none in good rows.
func TestCheckKeysFindsFaults(t *testing.T) {
	c := Case{Tags: TagRange{
		First: 0x10, Last: 0x12, Hashed: []projections.Tag{0x10}, MonthKeyed: []projections.Tag{0x12},
	}}
	key := func(shard events.Shard, tag projections.Tag, id string) []Row {
		return []Row{{Key: events.AppendID(projections.AppendPrefix(nil, shard, tag), id)}}
	}
	dated := func(shard events.Shard) []Row {
		return []Row{{Key: events.AppendID([]byte{2, 0xaa, 0x12, byte(shard >> 8), byte(shard)}, "ann")}}
	}

	for name, test := range map[string]struct {
		rows Rows
		want string
	}{
		"good":          {key(events.ShardOf("ann"), 0x11, "ann"), ""},
		"store-wide":    {key(projections.StoreShard, 0x11, "ann"), ""},
		"hash":          {Rows{{Key: []byte{0, 1, 0x10, 0xff}}}, ""},
		"dated":         {dated(events.ShardOf("ann")), ""},
		"dated, shard":  {dated(events.ShardOf("ann") + 1), "is of shard"},
		"foreign tag":   {key(events.ShardOf("ann"), 0x13, "ann"), "tag 0x13"},
		"foreign shard": {key(events.ShardOf("ann")+1, 0x11, "ann"), "is of shard"},
		"no id":         {Rows{{Key: []byte{0, 1, 0x11}}}, "malformed id"},
		"no rows":       {nil, "no rows"},
		"runtime":       {key(3, 0x01, "ann"), "runtime"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &failureRecorder{TB: t}
			CheckKeys(r, c, test.rows)
			got := strings.Join(r.failures, "\n")
			if test.want == "" && got != "" {
				t.Errorf("got failures %q, want none", got)
			}
			if !strings.Contains(got, test.want) {
				t.Errorf("got failures %q, want one that contains %q", got, test.want)
			}
		})
	}
}

// TestDiffDescribesDifferences checks the text that Diff returns for the first difference.
func TestDiffDescribesDifferences(t *testing.T) {
	a := Row{[]byte("a"), []byte("1")}
	b := Row{[]byte("b"), []byte("2")}
	for _, test := range []struct {
		got, want Rows
		wantDiff  string
	}{
		{Rows{a, b}, Rows{a, b}, ""},
		{Rows{a, b}, Rows{b}, "unwanted: 61 = 31"},
		{Rows{a, b}, Rows{a}, "unwanted: 62 = 32"},
		{Rows{a}, Rows{a, b}, "missing:  62 = 32"},
		{Rows{{a.Key, b.Value}}, Rows{a}, "differs:  61 = 32\n  want: 31"},
	} {
		if diff := test.got.Diff(test.want); diff != test.wantDiff {
			t.Errorf("difference of %v from %v: got %q, want %q", test.got, test.want, diff, test.wantDiff)
		}
	}
}
