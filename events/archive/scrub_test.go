package archive

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/skein-feed/skein/events"
)

// scrubUser is what erasing a user makes of an event: a play keeps its item, all else goes.
func matchUser(user string) func(ev *events.Event) (*events.Event, bool) {
	return func(ev *events.Event) (*events.Event, bool) {
		switch {
		case ev.User != user && ev.Peer != user && ev.RepinUser != user:
			return ev, true
		case ev.Kind == events.Played && ev.User == user:
			changed := *ev
			changed.User = ""
			return &changed, true
		}
		return nil, false
	}
}

// I12: what is scrubbed is gone, and all else is what it was, times and cursors too.
func TestScrubChangesOnlyMatches(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		envs := drawLog(rt, 20)
		const user = "ffffffff-ffff-4fff-bfff-ffffffffffff"
		b := newMemoryBucket()
		a := mustOpen(rt, b)
		mustSeal(rt, a, drawSegments(rt, envs)...)
		old := len(b.objects)

		want, done := toArchival(envs), Scrubbed{}
		for _, env := range want {
			evs, rejects := env.Events, env.Rejects
			env.Events, env.Rejects, env.Kinds = nil, nil, 0
			for i := range evs {
				ev, keep := matchUser(user)(&evs[i])
				switch {
				case !keep:
					done.Dropped++
					continue
				case ev != &evs[i]:
					done.Changed++
				}
				env.Events = append(env.Events, *ev)
				env.Kinds |= events.Kinds(ev.Kind)
			}
			for _, r := range rejects {
				if bytes.Contains(r.Data, []byte(user)) {
					done.Rejects++
				} else {
					env.Rejects = append(env.Rejects, r)
				}
			}
		}
		var progress []uint64
		got, err := a.Scrub(ctx, matchUser(user), func(r *events.Reject) (*events.Reject, bool) {
			return r, !bytes.Contains(r.Data, []byte(user))
		},

			func(bytes, total uint64) { progress = append(progress, bytes, total) })
		if err != nil {
			rt.Fatal(err)
		}
		if n := len(progress); progress[n-1] != progress[n-2] {
			rt.Errorf("progress %v", progress)
		}
		if done.Segments = got.Segments; got != done || got.Segments > old || (got.Segments == 0) != (done == Scrubbed{}) {
			rt.Fatalf("scrubbed %+v, want %+v", got, done)
		}
		a = mustOpen(rt, b)
		after, err := readAll(a, events.Cursor{Log: testLog}, events.AllKinds, 1<<20)
		if err != nil {
			rt.Fatal(err)
		}
		if d := diffEnvelopes(want, after); d != "" {
			rt.Fatal(d)
		}
		if err := a.Check(ctx, nil); err != nil {
			rt.Fatal(err)
		}
		if len(b.objects) != old {
			rt.Fatalf("%d objects are left", len(b.objects))
		}
	})
}

// I12: no file contains the id, in whatever form it is written.
func TestScrubbedIDIsInNoFile(t *testing.T) {
	b := newMemoryBucket()
	a := mustOpen(t, b)
	env := newEnvelope(1, events.PinCreated, 3)
	other := newEnvelope(2, events.Played, 3)
	for i := range env.Events {
		env.Events[i].User, env.Events[i].Peer = "somebody", ""
		other.Events[i].User = "somebody"
	}
	env.Events[1].User, other.Events[1].User = "erased-user", "erased-user"
	env.Rejects = []events.Reject{{Seq: 1, Slot: 3, Data: []byte("about erased-user")}}
	env.Rejects[0].Rejection.Index = 3
	mustSeal(t, a, []*events.Envelope{env, other})
	if !bucketContains(t, a, "erased-user") {
		t.Fatal("the id is not found before")
	}
	done, err := a.Scrub(t.Context(), matchUser("erased-user"), func(r *events.Reject) (*events.Reject, bool) {
		changed := *r
		changed.Data = nil
		return &changed, true
	}, nil)
	if err != nil || done != (Scrubbed{Dropped: 1, Changed: 1, Rejects: 1, Segments: 2}) {
		t.Fatalf("%+v, %v", done, err)
	}
	if bucketContains(t, a, "erased-user") {
		t.Error("the id is still there")
	}
	if !bucketContains(t, a, "somebody") {
		t.Error("others are gone too")
	}
}

// contains looks for a text in all objects, as they are and in the dictionaries of their blocks.
func bucketContains(t *testing.T, a *Archive, text string) (found bool) {
	for name, data := range a.bucket.(*memoryBucket).objects {
		found = found || bytes.Contains(data, []byte(text)) || strings.Contains(name, text)
	}
	for _, s := range a.currentManifest().segments {
		r, err := openSegment(t.Context(), a.bucket, a.log, s)
		if err != nil {
			t.Fatal(err)
		}
		err = r.scanBlocks(t.Context(), 0, func(_ *blockInfo, b *block) error {
			for _, ids := range [][]string{b.users, b.items, b.names, b.rejectDatas} {
				found = found || slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(id, text) })
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}
