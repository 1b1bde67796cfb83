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

// answer is what the answers of all lists have, mutuals apart.
type answer interface {
	GetNextPageToken() string
	GetPosition() string
}

// listed is a page of a list as text: "id" or "id kind" an entry.
type listed struct {
	entries        []string
	next, position string
	// total is -1 where the list has none.
	total int64
}

// lister asks for a page of one list.
type lister func(size int32, token, at string) (listed, error)

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
		p := listed{next: R(res.Msg).GetNextPageToken(), position: R(res.Msg).GetPosition()}
		p.entries, p.total = entries(R(res.Msg))
		return p, nil
	}
}

// only is the kind of a request; nil means any.
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

// all walks through the pages of a list.
func (l lister) all(t testing.TB, size int32, at string) []string {
	t.Helper()
	var all []string
	token := ""
	for {
		p, err := l(size, token, at)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.entries) > int(size) {
			t.Errorf("a page of %d has %d entries", size, len(p.entries))
		}
		all = append(all, p.entries...)
		if token = p.next; token == "" {
			if p.total >= 0 && p.total != int64(len(all)) {
				t.Errorf("%d entries, total_size %d", len(all), p.total)
			}
			return all
		}
		if len(p.entries) == 0 {
			t.Fatal("an empty page that is not the last")
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
		"following":            {w.following("ann", anyKind), []string{"eve implicit", "10 explicit", "9 explicit", "dan explicit", "cid implicit", "bob explicit"}},
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
		for size := range int32(6) {
			if diff := cmp.Diff(c.want, c.list.all(t, 1+size, at)); diff != "" {
				t.Errorf("%s, pages of %d: %s", name, 1+size, diff)
			}
		}
	}
}

func TestPageSize(t *testing.T) {
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
		p, err := w.followers("star", anyKind)(size, "", at)
		if err != nil || len(p.entries) != want || p.total != 1500 || p.next == "" {
			t.Errorf("page_size %d: %d entries of %d, %v", size, len(p.entries), p.total, err)
		}
	}
	_, err := w.followers("star", anyKind)(-1, "", "")
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "page_size")
}

// I9: entries that stay in the list from the first page to the last appear exactly once, in order,
// whatever comes and goes in between; what goes does not appear on a later page.
func TestPagesWhileTheListChanges(t *testing.T) {
	w := newWorld(t)
	var evs []*skeinv1.Event
	for i := range 60 {
		evs = append(evs, follow(fmt.Sprintf("fan%02d", i), "star"))
	}
	at := w.publish(evs...)
	var got []string
	gone := map[string]bool{}
	token := ""
	for page := 0; ; page++ {
		p, err := w.followers("star", anyKind)(7, token, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range p.entries {
			if gone[e] {
				t.Errorf("%s was gone before page %d", e, page)
			}
		}
		got = append(got, p.entries...)
		if token = p.next; token == "" {
			break
		}
		// One comes, one that was shown goes, one that is to come goes, and one of each goes and
		// comes again.
		shown, ahead := fmt.Sprintf("fan%02d", 57-7*page), fmt.Sprintf("fan%02d", page)
		moved := fmt.Sprintf("fan%02d", 10+page)
		at = w.publish(
			follow(fmt.Sprintf("new%d", page), "star"), unfollow(shown, "star"), unfollow(ahead, "star"),
			unfollow(moved, "star"), follow(moved, "star"),
		)
		gone[shown+" explicit"], gone[ahead+" explicit"] = true, true
	}
	for i := 59; i >= 0; i-- {
		name := fmt.Sprintf("fan%02d explicit", i)
		n := 0
		for _, e := range got {
			if e == name {
				n++
			}
		}
		stayed := !gone[name] && (i < 10 || i >= 20)
		if n > 1 || stayed && n != 1 {
			t.Errorf("%s appears %d times", name, n)
		}
	}
	if !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("out of order: %v", got)
	}
}

// The next page never comes from an older state than the page before: a token demands its position.
func TestTokenDemandsItsPosition(t *testing.T) {
	w := newWorld(t, asleep, func(o *worldOptions) { o.Limits.AtLeastWait = 1 })
	at := w.publish(follow("ann", "bob"), follow("cid", "bob"))
	// As if another process, which is further, had answered the page before.
	pos := w.log.Position(1)
	if pos.String() != at {
		t.Fatalf("position %s, want %s", at, pos)
	}
	token := w.server.views.Keys.Sign(pagetoken.Token{List: graphservice.ListIDOf(graph.List{Kind: graph.Followers, User: "bob"}), Position: pos, Cursor: make([]byte, 12)})
	_, err := w.followers("bob", anyKind)(1, token, "")
	wantError(t, err, connect.CodeUnavailable, "NOT_CAUGHT_UP", "")
	if !detailsOf(t, err).retry {
		t.Error("no RetryInfo")
	}
	w.fold()
	if err := w.store.WaitFor(t.Context(), pos.Seq); err != nil {
		t.Fatal(err)
	}
	p, err := w.followers("bob", anyKind)(1, token, "")
	if err != nil || len(p.entries) != 1 || p.position != at {
		t.Errorf("%+v %v", p, err)
	}
}

func TestPageTokensThatAreRefused(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"), follow("cid", "bob"), followBoard("dan", "bob", "cats"), follow("ann", "cid"))
	p, err := w.followers("bob", anyKind)(1, "", at)
	if err != nil {
		t.Fatal(err)
	}
	token := p.next
	mine := w.server.views.Keys
	sign := func(change func(*pagetoken.Token)) string {
		p, err := mine.Verify(token, graphservice.ListIDOf(graph.List{Kind: graph.Followers, User: "bob"}))
		if err != nil {
			t.Fatal(err)
		}
		change(&p)
		return mine.Sign(p)
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
		"from another log":      {w.followers("bob", anyKind), sign(func(p *pagetoken.Token) { p.Position.Log[0]++ })},
		"from another epoch":    {w.followers("bob", anyKind), sign(func(p *pagetoken.Token) { p.Position.Epoch++ })},
		"from beyond the end":   {w.followers("bob", anyKind), sign(func(p *pagetoken.Token) { p.Position.Seq = 1 << 40 })},
		"of mutuals, for lists": {w.mutuals("bob", "ann"), token},
	} {
		_, err := c.list(1, c.token, "")
		if err == nil {
			t.Errorf("%s: taken", name)
			continue
		}
		t.Log(name, err)
		wantError(t, err, connect.CodeInvalidArgument, "INVALID_PAGE_TOKEN", "page_token")
	}
	_, err = w.followers("bob", anyKind)(1, strings.Repeat("x", 1025), "")
	wantError(t, err, connect.CodeInvalidArgument, "INVALID_FIELD", "page_token")
}

// A page is no larger on the wire than it must be.
func TestPageBytes(t *testing.T) {
	w := newWorld(t)
	at := w.publish(follow("ann", "bob"))
	res := ask(w, w.graph.ListFollowers, &skeinv1.ListFollowersRequest{UserId: "bob", AtLeast: at})
	if n := proto.Size(res.GetEntries()[0]); n > 24 {
		t.Errorf("%d bytes an entry", n)
	}
}

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
	for i, a := range lists {
		token := keys.Sign(pagetoken.Token{List: graphservice.ListIDOf(a), Cursor: []byte("m")})
		for j, b := range lists {
			_, err := keys.Verify(token, graphservice.ListIDOf(b))
			if (i == j) != (err == nil) || (i != j && !errors.Is(err, pagetoken.ErrOtherList)) {
				t.Errorf("token of %+v for %+v: %v", a, b, err)
			}
		}
	}
}
