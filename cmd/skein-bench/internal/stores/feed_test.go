package stores

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

func newTestWorld(t *testing.T) *feedWorld {
	t.Helper()
	boards, posts := makePosts(1100, 5000)
	w, err := newFeedWorld(boards, posts, 2000)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestFeedWorldIsConsistent(t *testing.T) {
	w := newTestWorld(t)
	if again := newTestWorld(t); !slices.Equal(w.follows, again.follows) || !slices.Equal(w.posts, again.posts) {
		t.Error("the same sizes gave another world")
	}
	seen, pushes := make(map[workload.Edge]bool), make([]int, len(w.boards))
	for _, e := range w.follows {
		if seen[e] {
			t.Fatalf("follow %v is a repeat", e)
		}
		seen[e] = true
		if int(e.Follower) < w.inboxCount() {
			pushes[e.Followee]++
		}
	}
	if !slices.Equal(pushes, w.inboxesPerBoard) {
		t.Error("those who are pushed to are counted wrongly")
	}
	if w.inboxesPerBoard[0] < w.readers {
		t.Errorf("%d of %d readers follow the first board", w.inboxesPerBoard[0], w.readers)
	}
	for board, n := range w.inboxesPerBoard {
		if (n > w.readers/10) != (board < celebrityCount) {
			t.Errorf("board %d has %d followers", board, n)
		}
	}
	for kind, want := range map[*[]feedReader]int{
		&w.light: followsPerLightReader, &w.heavy: celebrityCount + 540, &w.returning: celebrityCount + 540,
	} {
		for _, r := range *kind {
			if len(r.boards) != want || !slices.IsSorted(r.boards) {
				t.Errorf("reader %d follows %d boards, not %d: %v", r.number, len(r.boards), want, r.boards)
			}
			for _, board := range r.boards {
				if !seen[workload.Edge{Follower: r.number, Followee: board}] {
					t.Errorf("reader %d does not follow board %d", r.number, board)
				}
			}
		}
	}
	if !slices.IsSortedFunc(w.posts, func(a, b feedPost) int { return int(a.createdAt - b.createdAt) }) {
		t.Error("posts are not in the order of time")
	}
}

func TestLastRunsHaveEnoughDeliveries(t *testing.T) {
	w := newTestWorld(t)
	runs := w.lastRuns(3, 10_000)
	if len(runs) != 3 || runs[2].to != len(w.posts) || runs[0].to != runs[1].from || runs[1].to != runs[2].from {
		t.Fatalf("runs %v of %d posts", runs, len(w.posts))
	}
	for _, r := range runs {
		if n := w.countDeliveries(w.postsIn(r)); n < 10_000 || n-w.inboxesPerBoard[w.posts[r.from].board] >= 10_000 {
			t.Errorf("run %v has %d deliveries", r, n)
		}
	}
	if runs := w.lastRuns(3, 1<<40); !slices.Equal(runs, []postRange{{0, len(w.posts)}}) {
		t.Errorf("all posts in one run: %v", runs)
	}
}

// pullAllThreshold is the threshold at which nothing is pushed.
const pullAllThreshold = 0

// TestPagesOpenExpectedOutboxes folds the posts of a small world and reads the pages whose times
// the bench takes.
func TestPagesOpenExpectedOutboxes(t *testing.T) {
	w := newTestWorld(t)
	b := &measure.Bench{Dir: t.TempDir()}
	for _, threshold := range []int64{pullAllThreshold, pushAllThreshold} {
		f, err := openFeedStore(b, w, threshold)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.loadFollows(w); err != nil {
			t.Fatal(err)
		}
		if err := f.createInboxes(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		log, err := w.encodePosts(w.posts)
		if err != nil {
			t.Fatal(err)
		}
		if err := foldEncoded(t.Context(), f.BenchStore, log); err != nil {
			t.Fatal(err)
		}
		want := func(r feedReader) []string { return w.expectedPage(w.posts, r.boards) }
		for name, class := range map[string]struct {
			readers  []feedReader
			outboxes int
		}{
			"light": {w.light, 0}, "heavy": {w.heavy, 0}, "returning": {w.returning, len(w.returning[0].boards)},
		} {
			if threshold == pullAllThreshold {
				class.outboxes = len(class.readers[0].boards)
			}
			for range 2 { // a page begins an inbox, so returning readers lose theirs before each
				if name == "returning" {
					if err := f.dropInbox(class.readers[0].number); err != nil {
						t.Fatal(err)
					}
				}
				page, err := f.readPage(t.Context(), class.readers[0].number)
				if err != nil || page.OutboxesOpened != class.outboxes {
					t.Errorf("%s, threshold %d: %d outboxes were opened, not %d; %v", name, threshold, page.OutboxesOpened, class.outboxes, err)
				}
			}
			if err := f.checkPages(t.Context(), class.readers, want); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := f.checkPages(t.Context(), w.light[:1], func(feedReader) []string { return nil }); err == nil {
			t.Error("a wrong page was not noticed")
		}
		if n, err := f.CompactedBytes(t.Context()); err != nil || n == 0 {
			t.Errorf("compacted to %d bytes, %v", n, err)
		}
		if err := f.CloseAndRemove(); err != nil {
			t.Error(err)
		}
	}
}

func TestPostsAreReadPlainAndCompressed(t *testing.T) {
	const table = "created_utc,board,post_id,score,ups\n10,b,x,1,0\n20,a,y,5,0\n20,b,z,2,0\n30,c,w,4,0\n"
	plain := filepath.Join(t.TempDir(), "posts.csv")
	var packed bytes.Buffer
	zw, err := zstd.NewWriter(&packed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := zw.Write([]byte(table)); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"plain": []byte(table), "zstd": packed.Bytes()} {
		if err := os.WriteFile(plain, data, 0o600); err != nil {
			t.Fatal(err)
		}
		boards, posts, err := readPosts(plain, 3)
		want := []feedPost{{"y", 20e6, 0}, {"z", 20e6, 2}, {"w", 30e6, 1}}
		if err != nil || !slices.Equal(boards, []string{"a", "c", "b"}) || !slices.Equal(posts, want) {
			t.Errorf("%s: boards %v, posts %v, %v", name, boards, posts, err)
		}
	}
	for text, want := range map[string]string{
		"":                              "EOF",
		"board,post_id,score\n":         "no column is named created_utc",
		table + "x,a,v,1,0\n":           "invalid syntax",
		table + "40,a,v,much,0\n":       "invalid syntax",
		table + "29,a,v,1,0\n":          "post v is older",
		table + "29,a\n":                "wrong number of fields",
		"created_utc,board,post_id\n1,": "no column is named score",
	} {
		if _, _, _, err := parsePosts(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestDeliveryCommandsAreEncoded(t *testing.T) {
	for kind, want := range map[redisFeedKind]string{
		feedsAsLists: "*3\r\n$5\r\nLPUSH\r\n$1\r\nk\r\n$1\r\np\r\n*4\r\n$5\r\nLTRIM\r\n$1\r\nk\r\n$1\r\n0\r\n$3\r\n999\r\n",
		feedsAsSortedSets: "*4\r\n$4\r\nZADD\r\n$1\r\nk\r\n$1\r\n9\r\n$1\r\np\r\n" +
			"*4\r\n$15\r\nZREMRANGEBYRANK\r\n$1\r\nk\r\n$1\r\n0\r\n$5\r\n-1001\r\n",
	} {
		if got := string(kind.appendDelivery(nil, "k", "p", "9")); got != want {
			t.Errorf("%s: %q", kind.seriesName(), got)
		}
	}
}

func TestMergedListsAreNewestFirst(t *testing.T) {
	lists := idLists{{"9", "4", "1"}, {"8"}, {"7", "6", "5", "3", "2"}}
	if got := lists.takeNewest(6); !slices.Equal(got, []string{"9", "8", "7", "6", "5", "4"}) {
		t.Errorf("merged %v", got)
	}
	if got := (idLists{{"2"}, {"1"}}).takeNewest(6); !slices.Equal(got, []string{"2", "1"}) {
		t.Errorf("merged %v", got)
	}
}
