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

// askUntilAnswered sends a read to random clients until one of them gets an answer. It returns nil
// if the context ends, or if the error is one that clients should not retry.
func askUntilAnswered[Req, Res any](ctx context.Context, w *soakWriter, name string, methodOf func(*command.Client) command.Method[Req, Res], req *Req) *Res {
	for ctx.Err() == nil {
		api := w.soak.clients[w.random.IntN(len(w.soak.clients))]
		callCtx, cancel := context.WithTimeout(ctx, readTime)
		res, err := methodOf(api)(callCtx, connect.NewRequest(req))
		cancel()

		if err == nil {
			w.soak.countOperation(name)
			w.soak.readGaps.recordAnswer()
			return res.Msg
		}
		if !w.soak.recordError(ctx, name+" in "+w.name, err) {
			return nil
		}
		sleepOrDone(ctx, 50*time.Millisecond)
	}
	return nil
}

// compareList compares a list with the expected one. A list that lacks an entry is a lost event,
// any other difference a wrong answer.
func (w *soakWriter) compareList(what string, want, got []string) {
	if slices.Equal(want, got) {
		return
	}
	kind := isWrong
	for _, entry := range want {
		if !slices.Contains(got, entry) {
			kind = isLost
		}
	}
	w.soak.reportFinding(kind, "%s at %s: %s (-want +got):\n%s", w.name, w.lastPosition, what, gocmp.Diff(want, got))
}

// compareCount compares a count with the expected one. A count that is too low is a lost event, and
// one that is too high a wrong answer.
func (w *soakWriter) compareCount(what string, want, got int64) {
	if want == got {
		return
	}
	kind := isWrong
	if got < want {
		kind = isLost
	}
	w.soak.reportFinding(kind, "%s at %s: %s: got %d, want %d", w.name, w.lastPosition, what, got, want)
}

// hasOneEntryPer reports a wrong answer unless the answer has as many entries as the request, so
// that the caller can compare them one by one.
func (w *soakWriter) hasOneEntryPer(what string, requested, answered int) bool {
	if requested == answered {
		return true
	}
	w.soak.reportFinding(isWrong, "%s at %s: entries of the answer about %s: got %d, want %d", w.name, w.lastPosition, what, answered, requested)
	return false
}

// compareSome compares two random answers.
func (w *soakWriter) compareSome(ctx context.Context) {
	for range 2 {
		user := w.randomUser()
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

// compareAll compares everything that can be asked about the users and items of the writer.
func (w *soakWriter) compareAll(ctx context.Context) {
	w.comparePairs(ctx)
	w.compareCounts(ctx)
	for n := range usersPerWriter {
		user := w.user(n)
		w.compareFollowers(ctx, user)
		w.compareFollowing(ctx, user)
		w.compareRelations(ctx, user)
		w.compareFeed(ctx, user)
		w.comparePins(ctx, user)
		w.compareSeen(ctx, user)
		w.compareServed(ctx, user)
	}
	w.soak.countOperation("whole realms compared")
}

// comparePairs asks for each pair of users whether the first follows the second, and compares the
// pairs that do.
func (w *soakWriter) comparePairs(ctx context.Context) {
	req := &skeinv1.CheckFollowsRequest{AtLeast: w.lastPosition}
	var names, want, got []string
	for a := range usersPerWriter {
		for b := range usersPerWriter {
			if a == b {
				continue
			}
			req.Pairs = append(req.Pairs, userPair(w.user(a), w.user(b)))
			name := w.user(a) + " → " + w.user(b)
			names = append(names, name)

			_, follows := w.expected.followedAt[[2]string{w.user(a), w.user(b)}]
			if follows {
				want = append(want, name)
			}
		}
	}

	res := askUntilAnswered(ctx, w, "CheckFollows", func(c *command.Client) command.Method[skeinv1.CheckFollowsRequest, skeinv1.CheckFollowsResponse] {
		return c.Graph().CheckFollows
	}, req)
	if res == nil || !w.hasOneEntryPer("follows", len(names), len(res.GetKinds())) {
		return
	}

	for i, kind := range res.GetKinds() {
		switch kind {
		case skeinv1.FollowKind_FOLLOW_KIND_NONE:
		case skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT:
			got = append(got, names[i])
		default:
			// Writers follow no boards, so no other kind is expected. This text is in no list of
			// expected pairs, so it becomes a difference.
			got = append(got, fmt.Sprintf("%s: %v", names[i], kind))
		}
	}
	w.compareList("follows", want, got)
}

// pageSize returns a page size, often one so small that a list has many pages.
func (w *soakWriter) pageSize() int32 { return int32([...]int{3, 5, 100}[w.random.IntN(3)]) }

// compareFollowers compares the followers of a user, and the total size that each page states.
func (w *soakWriter) compareFollowers(ctx context.Context, user string) {
	want := w.expected.followers(user)
	req := &skeinv1.ListFollowersRequest{UserId: user, AtLeast: w.lastPosition, PageSize: w.pageSize()}
	var got []string
	for hasMore := true; hasMore; hasMore = req.PageToken != "" {
		res := askUntilAnswered(ctx, w, "ListFollowers", func(c *command.Client) command.Method[skeinv1.ListFollowersRequest, skeinv1.ListFollowersResponse] {
			return c.Graph().ListFollowers
		}, req)
		if res == nil {
			return
		}

		for _, e := range res.GetEntries() {
			got = append(got, e.GetUserId())
		}
		w.compareCount("total size of the followers of "+user, int64(len(want)), int64(res.GetTotalSize()))
		req.PageToken = res.GetNextPageToken()
	}
	w.compareList("followers of "+user, want, got)
}

// compareFollowing compares the users whom a user follows.
func (w *soakWriter) compareFollowing(ctx context.Context, user string) {
	req := &skeinv1.ListFollowingRequest{UserId: user, AtLeast: w.lastPosition, PageSize: w.pageSize()}
	var got []string
	for hasMore := true; hasMore; hasMore = req.PageToken != "" {
		res := askUntilAnswered(ctx, w, "ListFollowing", func(c *command.Client) command.Method[skeinv1.ListFollowingRequest, skeinv1.ListFollowingResponse] {
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
	w.compareList("followees of "+user, w.expected.following(user), got)
}

// compareRelations compares the blocks and mutes between a viewer and all users.
func (w *soakWriter) compareRelations(ctx context.Context, viewer string) {
	req := &skeinv1.BatchGetRelationshipsRequest{ViewerId: viewer, AtLeast: w.lastPosition}
	for n := range usersPerWriter {
		req.UserIds = append(req.UserIds, w.user(n))
	}

	res := askUntilAnswered(ctx, w, "BatchGetRelationships",
		func(c *command.Client) command.Method[skeinv1.BatchGetRelationshipsRequest, skeinv1.BatchGetRelationshipsResponse] {
			return c.Graph().BatchGetRelationships
		}, req)
	if res == nil || !w.hasOneEntryPer("relations of "+viewer, len(req.UserIds), len(res.GetRelationships())) {
		return
	}

	// A user without blocks and mutes has no text.
	addText := func(texts []string, user string, blocking, blocked, muting bool) []string {
		if !blocking && !blocked && !muting {
			return texts
		}
		return append(texts, fmt.Sprintf("%s: blocking %t, blocked %t, muting %t", user, blocking, blocked, muting))
	}
	var want, got []string
	for i, r := range res.GetRelationships() {
		user := req.UserIds[i]
		fromViewer := [2]string{viewer, user}
		toViewer := [2]string{user, viewer}
		want = addText(want, user, w.expected.blocks[fromViewer], w.expected.blocks[toViewer], w.expected.mutes[fromViewer])
		got = addText(got, r.GetUserId(), r.GetBlocking(), r.GetBlockedBy(), r.GetMuting())
	}
	w.compareList("relations of "+viewer, want, got)
}

// feedEntryTexts returns the entries of a feed or of a list of pins in the format of pinText.
func feedEntryTexts(entries []*skeinv1.FeedEntry) (texts []string) {
	for _, e := range entries {
		texts = append(texts, e.GetOwnerId()+"/"+e.GetBoardId()+"/"+e.GetPinId()+"="+e.GetItemId())
	}
	return texts
}

// compareFeed compares the whole feed of a reader.
func (w *soakWriter) compareFeed(ctx context.Context, reader string) {
	req := &skeinv1.ReadFeedRequest{ReaderId: reader, AtLeast: w.lastPosition, PageSize: 10 * w.pageSize()}
	var got []string
	for {
		res := askUntilAnswered(ctx, w, "ReadFeed", func(c *command.Client) command.Method[skeinv1.ReadFeedRequest, skeinv1.ReadFeedResponse] {
			return c.Feed().ReadFeed
		}, req)
		if res == nil {
			return
		}

		// If the service says that the page is not exact, start again with the first page.
		completeness := res.GetCompleteness()
		if completeness != skeinv1.FeedCompleteness_FEED_COMPLETENESS_COMPLETE {
			w.soak.countOperation("ReadFeed, " + completeness.String())
			req.Start = nil
			got = nil
			sleepOrDone(ctx, 50*time.Millisecond)
			continue
		}

		got = append(got, feedEntryTexts(res.GetEntries())...)
		if res.GetNextPageToken() == "" {
			break
		}
		req.Start = &skeinv1.ReadFeedRequest_PageToken{PageToken: res.GetNextPageToken()}
	}
	w.compareList("feed of "+reader, w.expected.feed(reader), got)
}

// comparePins compares the pins of an owner on all boards.
func (w *soakWriter) comparePins(ctx context.Context, owner string) {
	req := &skeinv1.ListPinsRequest{
		Target: &skeinv1.ListPinsRequest_OwnerId{OwnerId: owner}, AtLeast: w.lastPosition, PageSize: 5 * w.pageSize(),
	}
	var got []string
	for hasMore := true; hasMore; hasMore = req.PageToken != "" {
		res := askUntilAnswered(ctx, w, "ListPins", func(c *command.Client) command.Method[skeinv1.ListPinsRequest, skeinv1.ListPinsResponse] {
			return c.Feed().ListPins
		}, req)
		if res == nil {
			return
		}

		got = append(got, feedEntryTexts(res.GetEntries())...)
		req.PageToken = res.GetNextPageToken()
	}
	w.compareList("pins of "+owner, w.expected.pinsOf(owner), got)
}

// compareSeen asks which items a user has not seen: all items of the writer, and as many items that
// no user has ever played. An item that the user has played must be seen. The API allows that a few
// other items are taken for seen, so these are only counted. [soakTraffic.findings] judges their
// share.
func (w *soakWriter) compareSeen(ctx context.Context, user string) {
	req := &skeinv1.FilterSeenRequest{UserId: user, AtLeast: w.lastPosition, IgnoreServed: true}
	for n := range itemsPerWriter {
		req.ItemIds = append(req.ItemIds, w.item(n), fmt.Sprintf("%s-never%d-%d", w.name, w.batchCount, n))
	}

	res := askUntilAnswered(ctx, w, "FilterSeen", func(c *command.Client) command.Method[skeinv1.FilterSeenRequest, skeinv1.FilterSeenResponse] {
		return c.Seen().FilterSeen
	}, req)
	if res == nil {
		return
	}
	isUnseen := map[int]bool{}
	for _, i := range res.GetUnseenIndexes() {
		isUnseen[int(i)] = true
	}

	falselySeen := 0
	neverPlayed := 0
	for i, item := range req.ItemIds {
		if w.expected.plays[[2]string{user, item}] > 0 {
			if isUnseen[i] {
				w.soak.reportFinding(isLost, "%s at %s: %s, which %s has played: got unseen, want seen", w.name, w.lastPosition, item, user)
			}
			continue
		}
		neverPlayed++
		if !isUnseen[i] {
			falselySeen++
		}
	}

	w.soak.mu.Lock()
	defer w.soak.mu.Unlock()
	w.soak.falselySeen += falselySeen
	w.soak.unseenAsked += neverPlayed
}

// compareServed compares the items that were last served to a user.
func (w *soakWriter) compareServed(ctx context.Context, user string) {
	res := askUntilAnswered(ctx, w, "ListServed", func(c *command.Client) command.Method[skeinv1.ListServedRequest, skeinv1.ListServedResponse] {
		return c.Seen().ListServed
	}, &skeinv1.ListServedRequest{UserId: user, AtLeast: w.lastPosition})
	if res != nil {
		w.compareList("serves of "+user, w.expected.served[user], res.GetItemIds())
	}
}

// compareCounts compares the counters of all users and items, and of the two marker items that
// begin and end each batch.
func (w *soakWriter) compareCounts(ctx context.Context) {
	req := &skeinv1.BatchGetCountersRequest{AtLeast: w.lastPosition}
	var names []string
	var want []*skeinv1.Counters
	add := func(name string, key *skeinv1.CounterKey, expected *skeinv1.Counters) {
		names = append(names, name)
		req.Keys = append(req.Keys, key)
		want = append(want, expected)
	}
	for n := range usersPerWriter {
		add(w.user(n), userKey(w.user(n)), w.expected.userCounters(w.user(n)))
	}
	for n := range itemsPerWriter {
		add(w.item(n), itemKey(w.item(n)), w.expected.itemCounters(w.item(n)))
	}
	for n := range 2 {
		add(w.batchMarker(n), itemKey(w.batchMarker(n)), w.expected.itemCounters(w.batchMarker(n)))
	}

	res := askUntilAnswered(ctx, w, "BatchGetCounters", func(c *command.Client) command.Method[skeinv1.BatchGetCountersRequest, skeinv1.BatchGetCountersResponse] {
		return c.Counters().BatchGetCounters
	}, req)
	if res == nil || !w.hasOneEntryPer("counts", len(want), len(res.GetCounters())) {
		return
	}

	for i, got := range res.GetCounters() {
		diff := gocmp.Diff(want[i], got, protocmp.Transform())
		if diff == "" {
			continue
		}

		// A count that is too low is a lost event, any other difference a wrong answer.
		kind := isWrong
		if got.GetPlayCount() < want[i].GetPlayCount() || got.GetPinCount() < want[i].GetPinCount() ||
			got.GetFollowerCount() < want[i].GetFollowerCount() || likeCount(got) < likeCount(want[i]) {
			kind = isLost
		}
		w.soak.reportFinding(kind, "%s at %s: counts of %s (-want +got):\n%s", w.name, w.lastPosition, names[i], diff)
	}
}
