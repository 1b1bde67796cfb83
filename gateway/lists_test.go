package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/skein-feed/skein/gateway/internal/graphservice"
	"github.com/skein-feed/skein/gateway/pagetoken"
	"github.com/skein-feed/skein/projections/graph"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

// answer has the fields that the answers of all lists have.
type answer interface {
	GetNextPageToken() string
	GetPosition() string
}

// listed is a page of a list, with its entries as text.
type listed struct {
	entries []string
	// next is the token of the next page. It is empty on the last page.
	next     string
	position string
	// total is the total of the list, or -1 if the list has none or the total counts entries that
	// are left out.
	total int64
}

// lister reads a page of a list.
type lister func(size int32, token, at string) (listed, error)

// names returns entries as "user kind". An entry without a time is followed by "no time".
func names(entries []*skeinv1.FollowEntry) (out []string) {
	for _, e := range entries {
		kind := strings.ToLower(strings.TrimPrefix(e.GetKind().String(), "FOLLOW_KIND_"))
		out = append(out, e.GetUserId()+" "+kind)
		if e.GetFollowTime().AsTime().Unix() == 0 {
			out = append(out, "no time")
		}
	}
	return out
}

// boardNames returns entries as "owner/board title".
func boardNames(entries []*skeinv1.BoardEntry) (out []string) {
	for _, e := range entries {
		out = append(out, strings.TrimSpace(e.GetBoard().GetOwnerId()+"/"+e.GetBoard().GetBoardId()+" "+e.GetTitle()))
	}
	return out
}

func userNames(entries []*skeinv1.UserEntry) (out []string) {
	for _, e := range entries {
		out = append(out, e.GetUserId())
	}
	return out
}

// list returns the lister for a method. The function request makes a request for a page, and
// entries returns the entries of an answer as text, and the total.
func list[Req, Res any, R interface {
	*Res
	answer
}](
	method func(context.Context, *connect.Request[Req]) (*connect.Response[Res], error),
	request func(size int32, token, at string) *Req, entries func(R) ([]string, int64),
) lister {
	return func(size int32, token, at string) (listed, error) {
		res, err := method(context.Background(), connect.NewRequest(request(size, token, at)))
		if err != nil {
			return listed{}, err
		}
		page := R(res.Msg)
		texts, total := entries(page)
		return listed{entries: texts, next: page.GetNextPageToken(), position: page.GetPosition(), total: total}, nil
	}
}

// only returns the kind for a request, in which nil means any kind.
func only(kind skeinv1.FollowKind) *skeinv1.FollowKind {
	if kind == anyKind {
		return nil
	}
	return kind.Enum()
}

func (w *world) following(user string, kind skeinv1.FollowKind) lister {
	return list(w.graph.ListFollowing, func(size int32, token, at string) *skeinv1.ListFollowingRequest {
		return &skeinv1.ListFollowingRequest{UserId: user, Kind: only(kind), PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListFollowingResponse) ([]string, int64) {
		return names(r.GetEntries()), int64(r.GetTotalSize())
	})
}

func (w *world) followers(user string, kind skeinv1.FollowKind) lister {
	return list(w.graph.ListFollowers, func(size int32, token, at string) *skeinv1.ListFollowersRequest {
		return &skeinv1.ListFollowersRequest{UserId: user, Kind: only(kind), PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListFollowersResponse) ([]string, int64) {
		return names(r.GetEntries()), int64(r.GetTotalSize())
	})
}

func (w *world) boardFollowers(b *skeinv1.Board, kind skeinv1.BoardFollowerKind) lister {
	return list(w.graph.ListBoardFollowers, func(size int32, token, at string) *skeinv1.ListBoardFollowersRequest {
		return &skeinv1.ListBoardFollowersRequest{Board: b, Kind: kind, PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListBoardFollowersResponse) ([]string, int64) {
		return names(r.GetEntries()), int64(r.GetTotalSize())
	})
}

func (w *world) followedBoards(user string) lister {
	return list(w.graph.ListFollowedBoards, func(size int32, token, at string) *skeinv1.ListFollowedBoardsRequest {
		return &skeinv1.ListFollowedBoardsRequest{UserId: user, PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListFollowedBoardsResponse) ([]string, int64) {
		return boardNames(r.GetEntries()), int64(r.GetTotalSize())
	})
}

func (w *world) excludedBoards(user string) lister {
	return list(w.graph.ListExcludedBoards, func(size int32, token, at string) *skeinv1.ListExcludedBoardsRequest {
		return &skeinv1.ListExcludedBoardsRequest{UserId: user, PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListExcludedBoardsResponse) ([]string, int64) {
		return boardNames(r.GetEntries()), int64(r.GetTotalSize())
	})
}

func (w *world) boards(user string) lister {
	return list(w.graph.ListBoards, func(size int32, token, at string) *skeinv1.ListBoardsRequest {
		return &skeinv1.ListBoardsRequest{UserId: user, PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListBoardsResponse) ([]string, int64) {
		return boardNames(r.GetEntries()), int64(r.GetTotalSize())
	})
}

func (w *world) blocked(user string) lister {
	return list(w.graph.ListBlocked, func(size int32, token, at string) *skeinv1.ListBlockedRequest {
		return &skeinv1.ListBlockedRequest{UserId: user, PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListBlockedResponse) ([]string, int64) {
		return userNames(r.GetEntries()), int64(r.GetTotalSize())
	})
}

func (w *world) muted(user string) lister {
	return list(w.graph.ListMuted, func(size int32, token, at string) *skeinv1.ListMutedRequest {
		return &skeinv1.ListMutedRequest{UserId: user, PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListMutedResponse) ([]string, int64) {
		return userNames(r.GetEntries()), int64(r.GetTotalSize())
	})
}

func (w *world) mutuals(viewer, user string) lister {
	return list(w.graph.ListMutuals, func(size int32, token, at string) *skeinv1.ListMutualsRequest {
		return &skeinv1.ListMutualsRequest{ViewerId: viewer, UserId: user, PageSize: size, PageToken: token, AtLeast: at}
	}, func(r *skeinv1.ListMutualsResponse) ([]string, int64) { return names(r.GetEntries()), -1 })
}

const (
	anyKind  = skeinv1.FollowKind_FOLLOW_KIND_NONE
	explicit = skeinv1.FollowKind_FOLLOW_KIND_EXPLICIT
	implicit = skeinv1.FollowKind_FOLLOW_KIND_IMPLICIT

	allOf     = skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_ALL
	onBoard   = skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXPLICIT
	excluders = skeinv1.BoardFollowerKind_BOARD_FOLLOWER_KIND_EXCLUDERS
)

// all returns the entries of all pages of a list, and checks that no page is too large, that only
// the last one is empty, and that the total is the number of entries.
func (l lister) all(t testing.TB, size int32, at string) []string {
	t.Helper()
	var entries []string
	token := ""
	for {
		page, err := l(size, token, at)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.entries) > int(size) {
			t.Errorf("got a page of %d entries, want at most %d", len(page.entries), size)
		}
		entries = append(entries, page.entries...)

		token = page.next
		if token == "" {
			if page.total >= 0 && page.total != int64(len(entries)) {
				t.Errorf("got total_size %d, want %d as in the list", page.total, len(entries))
			}
			return entries
		}
		if len(page.entries) == 0 {
			t.Fatal("got an empty page with a next page, want entries on it")
		}
	}
}

func TestLists(t *testing.T) {
	w := newWorld(t)
	at := w.publish(
		createBoard("bob", "cats", "Cats"), createBoard("bob", "dogs", "Dogs"), createBoard("bob", "hens", ""),
		follow("ann", "bob"), followBoard("ann", "cid", "cats"), follow("ann", "dan"), follow("ann", "9"), follow("ann", "10"),
		unfollowBoard("ann", "bob", "dogs"), unfollowBoard("ann", "bob", "hens"),
		followBoard("ann", "eve", ""), followBoard("ann", "bob", "cats"),
		follow("dan", "bob"), followBoard("eve", "bob", "cats"), followBoard("eve", "bob", "dogs"), follow("cid", "bob"),
		unfollowBoard("cid", "bob", "dogs"),
		block("ann", "x"), block("ann", "y"), mute("ann", "bob"), mute("ann", "dan"),
	)
	for name, c := range map[string]struct {
		list lister
		want []string
	}{
		"following": {
			w.following("ann", anyKind),
			[]string{"eve implicit", "10 explicit", "9 explicit", "dan explicit", "cid implicit", "bob explicit"},
		},
		"following explicitly": {w.following("ann", explicit), []string{"10 explicit", "9 explicit", "dan explicit", "bob explicit"}},
		"following implicitly": {w.following("ann", implicit), []string{"eve implicit", "cid implicit"}},
		"followers":            {w.followers("bob", anyKind), []string{"cid explicit", "eve implicit", "dan explicit", "ann explicit"}},
		"explicit followers":   {w.followers("bob", explicit), []string{"cid explicit", "dan explicit", "ann explicit"}},
		"implicit followers":   {w.followers("bob", implicit), []string{"eve implicit"}},
		"all of cats":          {w.boardFollowers(board("bob", "cats"), allOf), []string{"cid explicit", "eve board", "dan explicit", "ann board"}},
		"all by default":       {w.boardFollowers(board("bob", "cats"), 0), []string{"cid explicit", "eve board", "dan explicit", "ann board"}},
		"followers of cats":    {w.boardFollowers(board("bob", "cats"), onBoard), []string{"eve board", "ann board"}},
		"excluders of dogs":    {w.boardFollowers(board("bob", "dogs"), excluders), []string{"cid excluded", "ann excluded"}},
		"all of dogs":          {w.boardFollowers(board("bob", "dogs"), allOf), []string{"eve board", "dan explicit"}},
		"all of the default":   {w.boardFollowers(board("bob", ""), allOf), []string{"cid explicit", "dan explicit", "ann explicit"}},
		"of no board":          {w.boardFollowers(board("bob", "none"), allOf), nil},
		"followed boards":      {w.followedBoards("ann"), []string{"bob/cats", "eve/", "cid/cats"}},
		"excluded boards":      {w.excludedBoards("ann"), []string{"bob/hens", "bob/dogs"}},
		"boards":               {w.boards("bob"), []string{"bob/hens", "bob/dogs Dogs", "bob/cats Cats"}},
		"blocked":              {w.blocked("ann"), []string{"y", "x"}},
		"muted":                {w.muted("ann"), []string{"dan", "bob"}},
		"mutuals":              {w.mutuals("ann", "bob"), []string{"eve implicit", "dan explicit", "cid implicit"}},
		"of nobody":            {w.followers("nobody", anyKind), nil},
	} {
		t.Run(name, func(t *testing.T) {
			for size := int32(1); size <= 6; size++ {
				if diff := cmp.Diff(c.want, c.list.all(t, size, at)); diff != "" {
					t.Errorf("pages of %d (-want +got):\n%s", size, diff)
				}
			}
		})
	}
}

func TestPageSizesAreLimited(t *testing.T) {
	w := newWorld(t)
	var at string
	for i := range 3 {
		var evs []*skeinv1.Event
		for j := range 500 {
			evs = append(evs, follow(fmt.Sprintf("fan%d", 500*i+j), "star"))
		}
		at = w.publish(evs...)
	}

	for size, want := range map[int32]int{0: 50, 1: 1, 50: 50, 1000: 1000, 1001: 1000, 1<<31 - 1: 1000} {
		page, err := w.followers("star", anyKind)(size, "", at)
		if err != nil {
			t.Fatalf("page_size %d: %v", size, err)
		}
		if len(page.entries) != want || page.total != 1500 || page.next == "" {
			t.Errorf("page_size %d: got %d entries of %d and the next token %q, want %d entries of 1500 and a token",
				size, len(page.entries), page.total, page.next, want)
		}
	}
	_, err := w.followers("star", anyKind)(-1, "", "")
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "page_size")
}

// TestPagesWhileTheListChanges checks I9: entries that stay in the list from the first page to the
// last appear exactly once, in order, whatever is added and removed in between. An entry that is
// removed does not appear on a later page.
func TestPagesWhileTheListChanges(t *testing.T) {
	w := newWorld(t)
	var evs []*skeinv1.Event
	for i := range 60 {
		evs = append(evs, follow(fmt.Sprintf("fan%02d", i), "star"))
	}
	at := w.publish(evs...)

	var entries []string
	removed, moved := map[string]bool{}, map[string]bool{}
	token := ""
	for number := 0; ; number++ {
		page, err := w.followers("star", anyKind)(7, token, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.entries {
			if removed[e] {
				t.Errorf("page %d has %s, want no entry that was removed before", number, e)
			}
		}
		entries = append(entries, page.entries...)
		token = page.next
		if token == "" {
			break
		}

		// Before the next page, add a follower, remove one who is on this page and one who would
		// come on a later page, and move one to the top, who unfollows and follows again.
		shownFan := fmt.Sprintf("fan%02d", 57-7*number)
		laterFan := fmt.Sprintf("fan%02d", number)
		movedFan := fmt.Sprintf("fan%02d", 10+number)
		at = w.publish(
			follow(fmt.Sprintf("new%d", number), "star"), unfollow(shownFan, "star"), unfollow(laterFan, "star"),
			unfollow(movedFan, "star"), follow(movedFan, "star"),
		)
		removed[shownFan+" explicit"] = true
		removed[laterFan+" explicit"] = true
		moved[movedFan+" explicit"] = true
	}

	for i := range 60 {
		name := fmt.Sprintf("fan%02d explicit", i)
		n := 0
		for _, e := range entries {
			if e == name {
				n++
			}
		}
		if n > 1 {
			t.Errorf("%s appears %d times, want once at most", name, n)
		}
		if n == 0 && !removed[name] && !moved[name] {
			t.Errorf("%s does not appear, want it once, because it stayed in the list", name)
		}
	}

	// The newest follower, whose name has the highest number, comes first.
	if !slices.IsSortedFunc(entries, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("got %v, want descending order", entries)
	}
}

// TestTokenDemandsItsPosition checks that the next page never comes from an older state than the
// page before it.
func TestTokenDemandsItsPosition(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 1 })
	at := w.publish(follow("ann", "bob"), follow("cid", "bob"))

	// Sign a token like that of another process, which has read more of the log and has answered
	// the page before.
	position := w.log.Position(1)
	if position.String() != at {
		t.Fatalf("got position %s from Publish, want %s", at, position)
	}
	listID := graphservice.ListIDOf(graph.List{Kind: graph.Followers, User: "bob"})
	token := w.server.views.Keys.Sign(pagetoken.Token{List: listID, Position: position, Cursor: make([]byte, 12)})
	_, err := w.followers("bob", anyKind)(1, token, "")
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	if !detailsOf(t, err).retry {
		t.Error("page before the process has caught up: got an error without RetryInfo, want one")
	}

	w.fold()
	if err := w.store.WaitFor(t.Context(), position.Seq); err != nil {
		t.Fatal(err)
	}
	page, err := w.followers("bob", anyKind)(1, token, "")
	if err != nil || len(page.entries) != 1 || page.position != at {
		t.Errorf("page after the process has caught up: got %+v and error %v, want one entry at %s", page, err, at)
	}
}

func TestInvalidPageTokensAreRefused(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"), follow("cid", "bob"), followBoard("dan", "bob", "cats"), follow("ann", "cid"))
	page, err := w.followers("bob", anyKind)(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	token := page.next

	// signChanged returns the token with other contents and a good signature.
	keys := w.server.views.Keys
	signChanged := func(change func(*pagetoken.Token)) string {
		contents, err := keys.Verify(token, graphservice.ListIDOf(graph.List{Kind: graph.Followers, User: "bob"}))
		if err != nil {
			t.Fatal(err)
		}
		change(&contents)
		return keys.Sign(contents)
	}
	for name, c := range map[string]struct {
		list  lister
		token string
	}{
		"of another user":       {w.followers("cid", anyKind), token},
		"of another kind":       {w.followers("bob", explicit), token},
		"of another list":       {w.following("bob", anyKind), token},
		"of a board":            {w.boardFollowers(board("bob", ""), allOf), token},
		"damaged":               {w.followers("bob", anyKind), token[:10] + other(token[10]) + token[11:]},
		"cut":                   {w.followers("bob", anyKind), token[:len(token)-1]},
		"no token":              {w.followers("bob", anyKind), "next please"},
		"of another ring":       {w.followers("bob", anyKind), ring(t, "log:"+secret(1)).Sign(pagetoken.Token{})},
		"of an unknown key":     {w.followers("bob", anyKind), ring(t, "mine:"+secret(1)).Sign(pagetoken.Token{})},
		"from another log":      {w.followers("bob", anyKind), signChanged(func(p *pagetoken.Token) { p.Position.Log[0]++ })},
		"from another epoch":    {w.followers("bob", anyKind), signChanged(func(p *pagetoken.Token) { p.Position.Epoch++ })},
		"from beyond the end":   {w.followers("bob", anyKind), signChanged(func(p *pagetoken.Token) { p.Position.Seq = 1 << 40 })},
		"of mutuals, for lists": {w.mutuals("bob", "ann"), token},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.list(1, c.token, "")
			wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
		})
	}

	// A token that is too long to be one is not parsed.
	_, err = w.followers("bob", anyKind)(1, strings.Repeat("x", 1025), "")
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "page_token")
}

// TestEntriesOfPagesAreSmall checks that an entry of a page with short ids takes at most 24 bytes.
func TestEntriesOfPagesAreSmall(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	res := ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at})
	if n := proto.Size(res.GetEntries()[0]); n > 24 {
		t.Errorf("got an entry of %d bytes, want at most 24", n)
	}
}

// TestTokenIsBoundToItsList checks that the token of a list is refused for every other list. Two
// lists differ even if their ids are the same text when written one after the other.
func TestTokenIsBoundToItsList(t *testing.T) {
	keys := ring(t, "a:"+secret(0))
	lists := []graph.List{
		{Kind: graph.Followers, User: "ann"},
		{Kind: graph.FollowersExplicit, User: "ann"},
		{Kind: graph.Followers, User: "bob"},
		{Kind: graph.BoardFollowers, User: "ann"},
		{Kind: graph.BoardFollowers, User: "ann", Board: "cats"},
		{Kind: graph.BoardFollowers, User: "annc", Board: "ats"},
		{Kind: graph.Mutuals, User: "ann", Peer: "bob"},
		{Kind: graph.Mutuals, User: "bob", Peer: "ann"},
	}
	for i, signedList := range lists {
		token := keys.Sign(pagetoken.Token{List: graphservice.ListIDOf(signedList), Cursor: []byte("m")})
		for j, verifiedList := range lists {
			var want error
			if i != j {
				want = pagetoken.ErrOtherList
			}
			_, err := keys.Verify(token, graphservice.ListIDOf(verifiedList))
			if !errors.Is(err, want) {
				t.Errorf("token of %+v for %+v: got error %v, want %v", signedList, verifiedList, err, want)
			}
		}
	}
}
