package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// ask asks for what contains all that the realm holds, again and again until there is an answer;
// nil means there is none to be had.
func ask[Req, Res any](ctx context.Context, w *realm, name string, of func(*command.Client) command.Method[Req, Res], req *Req) *Res {
	for ctx.Err() == nil {
		api := w.f.doors[w.random.IntN(len(w.f.doors))]
		call, cancel := context.WithTimeout(ctx, readTime)
		res, err := of(api)(call, connect.NewRequest(req))
		cancel()
		if err == nil {
			w.f.did(name)
			w.f.reads.answered()
			return res.Msg
		}
		if !w.f.failed(ctx, name+" in "+w.name, err) {
			return nil
		}
		pause(ctx, 50*time.Millisecond)
	}
	return nil
}

// same compares a list with what the ledger says.
func (w *realm) same(what string, want, got []string) {
	if slices.Equal(want, got) {
		return
	}
	v := isWrong
	for _, entry := range want {
		if !slices.Contains(got, entry) {
			v = isLost
		}
	}
	w.f.accuse(v, "%s at %s: %s (-ledger +answer):\n%s", w.name, w.position, what, gocmp.Diff(want, got))
}

func (w *realm) sameCount(what string, want, got int64) {
	if want > got {
		w.f.accuse(isLost, "%s at %s: %s is %d, not %d", w.name, w.position, what, got, want)
	} else if want < got {
		w.f.accuse(isWrong, "%s at %s: %s is %d, not %d", w.name, w.position, what, got, want)
	}
}

// compareSome compares some answers.
func (w *realm) compareSome(ctx context.Context) {
	for range 2 {
		user := w.someone()
		switch w.random.IntN(8) {
		case 0:
			w.comparePairs(ctx)
		case 1:
			w.compareFollowers(ctx, user)
		case 2:
			w.compareFollowing(ctx, user)
		case 3:
			w.compareFeed(ctx, user)
		case 4:
			w.comparePins(ctx, user)
		case 5:
			w.compareSeen(ctx, user)
		case 6:
			w.compareServed(ctx, user)
		case 7:
			w.compareCounts(ctx)
		}
	}
}

// compareAll compares all that can be asked about the realm.
func (w *realm) compareAll(ctx context.Context) {
	w.comparePairs(ctx)
	w.compareCounts(ctx)
	for n := range realmUsers {
		user := w.user(n)
		w.compareFollowers(ctx, user)
		w.compareFollowing(ctx, user)
		w.compareRelations(ctx, user)
		w.compareFeed(ctx, user)
		w.comparePins(ctx, user)
		w.compareSeen(ctx, user)
		w.compareServed(ctx, user)
	}
	w.f.did("whole realms compared")
}

// comparePairs compares all follows between all users.
func (w *realm) comparePairs(ctx context.Context) {
	req := &skeinv1.CheckFollowsRequest{AtLeast: w.position}
	var names, want, got []string
	for a := range realmUsers {
		for b := range realmUsers {
			if a == b {
				continue
			}
			req.Pairs = append(req.Pairs, &skeinv1.FollowPair{
				UserId: w.user(a), Target: &skeinv1.FollowPair_TargetUserId{TargetUserId: w.user(b)},
			})
			name := w.user(a) + " → " + w.user(b)
			names = append(names, name)
			if _, follows := w.ledger.follows[[2]string{w.user(a), w.user(b)}]; follows {
				want = append(want, name)
			}
		}
	}
	res := ask(ctx, w, "CheckFollows", func(c *command.Client) command.Method[skeinv1.CheckFollowsRequest, skeinv1.CheckFollowsResponse] {
		return c.Graph().CheckFollows
	}, req)
	if res == nil {
		return
	}
	for i, kind := range res.GetKinds() {
		if kind == skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT {
			got = append(got, names[i])
		}
	}
	w.same("follows", want, got)
}

// pageSize is now and then so small that a list has many pages.
func (w *realm) pageSize() int32 { return int32([...]int{3, 5, 100}[w.random.IntN(3)]) }

func (w *realm) compareFollowers(ctx context.Context, user string) {
	req := &skeinv1.ListFollowersRequest{UserId: user, AtLeast: w.position, PageSize: w.pageSize()}
	var got []string
	for more := true; more; more = req.PageToken != "" {
		res := ask(ctx, w, "ListFollowers", func(c *command.Client) command.Method[skeinv1.ListFollowersRequest, skeinv1.ListFollowersResponse] {
			return c.Graph().ListFollowers
		}, req)
		if res == nil {
			return
		}
		for _, e := range res.GetEntries() {
			got = append(got, e.GetUserId())
		}
		w.sameCount("length of the followers of "+user, int64(len(w.ledger.followers(user))), int64(res.GetTotalSize()))
		req.PageToken = res.GetNextPageToken()
	}
	w.same("followers of "+user, w.ledger.followers(user), got)
}

func (w *realm) compareFollowing(ctx context.Context, user string) {
	req := &skeinv1.ListFollowingRequest{UserId: user, AtLeast: w.position, PageSize: w.pageSize()}
	var got []string
	for more := true; more; more = req.PageToken != "" {
		res := ask(ctx, w, "ListFollowing", func(c *command.Client) command.Method[skeinv1.ListFollowingRequest, skeinv1.ListFollowingResponse] {
			return c.Graph().ListFollowing
		}, req)
		if res == nil {
			return
		}
		for _, e := range res.GetEntries() {
			got = append(got, e.GetUserId())
		}
		req.PageToken = res.GetNextPageToken()
	}
	w.same("followees of "+user, w.ledger.following(user), got)
}

// compareRelations compares blocks and mutes.
func (w *realm) compareRelations(ctx context.Context, viewer string) {
	req := &skeinv1.BatchGetRelationshipsRequest{ViewerId: viewer, AtLeast: w.position}
	for n := range realmUsers {
		req.UserIds = append(req.UserIds, w.user(n))
	}
	res := ask(ctx, w, "BatchGetRelationships",
		func(c *command.Client) command.Method[skeinv1.BatchGetRelationshipsRequest, skeinv1.BatchGetRelationshipsResponse] {
			return c.Graph().BatchGetRelationships
		}, req)
	if res == nil {
		return
	}
	var want, got []string
	add := func(to *[]string, user string, blocking, blocked, muting bool) {
		if blocking || blocked || muting {
			*to = append(*to, fmt.Sprintf("%s: blocking %t, blocked %t, muting %t", user, blocking, blocked, muting))
		}
	}
	for i, r := range res.GetRelationships() {
		user := req.UserIds[i]
		there, back := [2]string{viewer, user}, [2]string{user, viewer}
		add(&want, user, w.ledger.blocks[there], w.ledger.blocks[back], w.ledger.mutes[there])
		add(&got, r.GetUserId(), r.GetBlocking(), r.GetBlockedBy(), r.GetMuting())
	}
	w.same("relations of "+viewer, want, got)
}

func entries(pins []*skeinv1.FeedEntry) (all []string) {
	for _, e := range pins {
		all = append(all, e.GetOwnerId()+"/"+e.GetBoardId()+"/"+e.GetPinId()+"="+e.GetItemId())
	}
	return all
}

func (w *realm) compareFeed(ctx context.Context, reader string) {
	req := &skeinv1.ReadFeedRequest{ReaderId: reader, AtLeast: w.position, PageSize: 10 * w.pageSize()}
	var got []string
	for {
		res := ask(ctx, w, "ReadFeed", func(c *command.Client) command.Method[skeinv1.ReadFeedRequest, skeinv1.ReadFeedResponse] {
			return c.Feed().ReadFeed
		}, req)
		if res == nil {
			return
		}
		if c := res.GetCompleteness(); c != skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE {
			// It says that it is no exact answer: begun again, it will be one.
			w.f.did("ReadFeed, " + c.String())
			req.Start, got = nil, nil
			pause(ctx, 50*time.Millisecond)
			continue
		}
		got = append(got, entries(res.GetEntries())...)
		if res.GetNextPageToken() == "" {
			break
		}
		req.Start = &skeinv1.ReadFeedRequest_PageToken{PageToken: res.GetNextPageToken()}
	}
	w.same("feed of "+reader, w.ledger.feed(reader), got)
}

func (w *realm) comparePins(ctx context.Context, owner string) {
	req := &skeinv1.ListPinsRequest{
		Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: owner}, AtLeast: w.position, PageSize: 5 * w.pageSize(),
	}
	var got []string
	for more := true; more; more = req.PageToken != "" {
		res := ask(ctx, w, "ListPins", func(c *command.Client) command.Method[skeinv1.ListPinsRequest, skeinv1.ListPinsResponse] {
			return c.Feed().ListPins
		}, req)
		if res == nil {
			return
		}
		got = append(got, entries(res.GetEntries())...)
		req.PageToken = res.GetNextPageToken()
	}
	w.same("pins of "+owner, w.ledger.ownPins(owner), got)
}

// compareSeen asks about all items, and as many that no user has ever played.
func (w *realm) compareSeen(ctx context.Context, user string) {
	req := &skeinv1.FilterSeenRequest{UserId: user, AtLeast: w.position, IgnoreServed: true}
	for n := range realmItems {
		req.ItemIds = append(req.ItemIds, w.item(n), fmt.Sprintf("%s-never%d-%d", w.name, w.batches, n))
	}
	res := ask(ctx, w, "FilterSeen", func(c *command.Client) command.Method[skeinv1.FilterSeenRequest, skeinv1.FilterSeenResponse] {
		return c.Seen().FilterSeen
	}, req)
	if res == nil {
		return
	}
	unseen := map[int]bool{}
	for _, i := range res.GetUnseenIndexes() {
		unseen[int(i)] = true
	}
	taken, candidates := 0, 0
	for i, item := range req.ItemIds {
		if w.ledger.plays[[2]string{user, item}] > 0 {
			if unseen[i] {
				w.f.accuse(isLost, "%s at %s: %s has played %s, and it is unseen", w.name, w.position, user, item)
			}
			continue
		}
		candidates++
		if !unseen[i] {
			taken++
		}
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.f.taken += taken
	w.f.candidates += candidates
}

func (w *realm) compareServed(ctx context.Context, user string) {
	res := ask(ctx, w, "ListServed", func(c *command.Client) command.Method[skeinv1.ListServedRequest, skeinv1.ListServedResponse] {
		return c.Seen().ListServed
	}, &skeinv1.ListServedRequest{UserId: user, AtLeast: w.position})
	if res != nil {
		w.same("serves of "+user, w.ledger.served[user], res.GetItemIds())
	}
}

// compareCounts compares the counts of all users and items, and those of whole batches.
func (w *realm) compareCounts(ctx context.Context) {
	req := &skeinv1.BatchGetCountersRequest{AtLeast: w.position}
	var want []*skeinv1.Counters
	var names []string
	add := func(name string, key *skeinv1.CounterKey, c *skeinv1.Counters) {
		names, req.Keys, want = append(names, name), append(req.Keys, key), append(want, c)
	}
	for n := range realmUsers {
		add(w.user(n), countUser(w.user(n)), w.ledger.ofUser(w.user(n)))
	}
	for n := range realmItems {
		add(w.item(n), countItem(w.item(n)), w.ledger.ofItem(w.item(n)))
	}
	for n := range 2 {
		add(w.bell(n), countItem(w.bell(n)), w.ledger.ofItem(w.bell(n)))
	}
	res := ask(ctx, w, "BatchGetCounters", func(c *command.Client) command.Method[skeinv1.BatchGetCountersRequest, skeinv1.BatchGetCountersResponse] {
		return c.Counters().BatchGetCounters
	}, req)
	if res == nil {
		return
	}
	for i, got := range res.GetCounters() {
		if diff := gocmp.Diff(want[i], got, protocmp.Transform()); diff != "" {
			v := isWrong
			if got.GetPlayCount() < want[i].GetPlayCount() || got.GetPinCount() < want[i].GetPinCount() ||
				got.GetFollowerCount() < want[i].GetFollowerCount() || likesOf(got) < likesOf(want[i]) {
				v = isLost
			}
			w.f.accuse(v, "%s at %s: counts of %s (-ledger +answer):\n%s", w.name, w.position, names[i], diff)
		}
	}
}
