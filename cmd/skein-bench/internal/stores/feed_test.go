package stores

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/measure"
	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
)

// newTestWorld returns a world of few boards and readers, always the same.
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
		t.Error("world of the same sizes: got another one, want the same")
	}

	isFollow := make(map[workload.Edge]bool)
	inboxesPerBoard := make([]int, len(w.boards))
	for _, e := range w.follows {
		if isFollow[e] {
			t.Fatalf("follow %v: got it twice, want it once", e)
		}
		isFollow[e] = true
		if int(e.Follower) < w.inboxCount() {
			inboxesPerBoard[e.Followee]++
		}
	}
	if diff := cmp.Diff(inboxesPerBoard, w.inboxesPerBoard); diff != "" {
		t.Errorf("inboxes per board (-want +got):\n%s", diff)
	}

	// Every reader follows the first board, and only celebrities have more than a tenth of the
	// readers.
	if got := w.inboxesPerBoard[0]; got < w.readers {
		t.Errorf("inboxes of the first board: got %d, want at least %d", got, w.readers)
	}
	for board, got := range w.inboxesPerBoard {
		isCelebrity := board < celebrityCount
		if hasMany := got > w.readers/10; hasMany != isCelebrity {
			t.Errorf("inboxes of board %d: got %d, want more than %d: %v", board, got, w.readers/10, isCelebrity)
		}
	}

	for kind, want := range map[*[]feedReader]int{
		&w.light: followsPerLightReader, &w.heavy: celebrityCount + 540, &w.returning: celebrityCount + 540,
	} {
		for _, r := range *kind {
			if len(r.boards) != want || !slices.IsSorted(r.boards) {
				t.Errorf("boards of reader %d: got %v, want %d of them in their order", r.number, r.boards, want)
			}
			for _, board := range r.boards {
				if !isFollow[workload.Edge{Follower: r.number, Followee: board}] {
					t.Errorf("follow of board %d by reader %d: got none, want one", board, r.number)
				}
			}
		}
	}

	byTime := func(a, b feedPost) int { return int(a.createdAt - b.createdAt) }
	if !slices.IsSortedFunc(w.posts, byTime) {
		t.Error("posts: got another order, want the oldest first")
	}
}

func TestLastRunsHaveEnoughDeliveries(t *testing.T) {
	w := newTestWorld(t)
	const wantDeliveries = 10_000
	runs := w.lastRuns(3, wantDeliveries)
	if len(runs) != 3 || runs[2].to != len(w.posts) || runs[0].to != runs[1].from || runs[1].to != runs[2].from {
		t.Fatalf("runs: got %v, want three that follow each other up to post %d", runs, len(w.posts))
	}

	// Without its first post, a run would have too few deliveries.
	for _, run := range runs {
		got := w.countDeliveries(w.postsIn(run))
		ofFirstPost := w.inboxesPerBoard[w.posts[run.from].board]
		if got < wantDeliveries || got-ofFirstPost >= wantDeliveries {
			t.Errorf("deliveries of run %v: got %d, %d of them of the first post, want no post more than needed for %d", run, got, ofFirstPost, wantDeliveries)
		}
	}

	// With fewer deliveries than a run should have, all posts are one run.
	if got, want := w.lastRuns(3, 1<<40), []postRange{{0, len(w.posts)}}; !slices.Equal(got, want) {
		t.Errorf("runs of very many deliveries: got %v, want %v", got, want)
	}
}

// pullAllThreshold is the threshold at which nothing is pushed.
const pullAllThreshold = 0

// TestPagesOpenExpectedOutboxes folds the posts of a small world and reads the pages whose times
// the bench takes.
func TestPagesOpenExpectedOutboxes(t *testing.T) {
	w := newTestWorld(t)
	b := &measure.Bench{Dir: t.TempDir()}
	wantPage := func(r feedReader) []string { return w.expectedPage(w.posts, r.boards) }
	wantEmptyPage := func(feedReader) []string { return nil }
	for name, threshold := range map[string]int64{"all pulled": pullAllThreshold, "all pushed": pushAllThreshold} {
		t.Run(name, func(t *testing.T) {
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

			for class, readers := range map[string][]feedReader{"light": w.light, "heavy": w.heavy, "returning": w.returning} {
				t.Run(class, func(t *testing.T) {
					// A reader whose inbox does not have the posts opens the outbox of each board.
					reader := readers[0]
					wantOpened := 0
					if threshold == pullAllThreshold || class == "returning" {
						wantOpened = len(reader.boards)
					}

					// A page begins an inbox, so returning readers lose theirs before each page.
					for range 2 {
						if class == "returning" {
							if err := f.dropInbox(reader.number); err != nil {
								t.Fatal(err)
							}
						}
						page, err := f.readPage(t.Context(), reader.number)
						if err != nil {
							t.Fatal(err)
						}
						if page.OutboxesOpened != wantOpened {
							t.Errorf("opened outboxes: got %d, want %d", page.OutboxesOpened, wantOpened)
						}
					}
					if err := f.checkPages(t.Context(), readers, wantPage); err != nil {
						t.Error(err)
					}
				})
			}

			// The check must notice a page that has too much.
			if err := f.checkPages(t.Context(), w.light[:1], wantEmptyPage); err == nil {
				t.Error("checkPages of a page that is not empty: got no error, want one")
			}

			size, err := f.CompactedBytes(t.Context())
			if err != nil {
				t.Error(err)
			}
			if size == 0 {
				t.Error("bytes of the compacted store: got 0, want more")
			}
			if err := f.CloseAndRemove(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPostsAreReadPlainAndCompressed(t *testing.T) {
	const table = "created_utc,board,post_id,score,ups\n10,b,x,1,0\n20,a,y,5,0\n20,b,z,2,0\n30,c,w,4,0\n"
	var compressed bytes.Buffer
	writer, err := zstd.NewWriter(&compressed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write([]byte(table)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}

	// Only the last three posts are read.
	wantBoards := []string{"a", "c", "b"}
	wantPosts := []feedPost{{"y", 20e6, 0}, {"z", 20e6, 2}, {"w", 30e6, 1}}
	for name, data := range map[string][]byte{"plain": []byte(table), "zstd": compressed.Bytes()} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "posts.csv")
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			boards, posts, err := readPosts(path, 3)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(boards, wantBoards) {
				t.Errorf("boards: got %v, want %v", boards, wantBoards)
			}
			if !slices.Equal(posts, wantPosts) {
				t.Errorf("posts: got %v, want %v", posts, wantPosts)
			}
		})
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
			t.Errorf("parsePosts(%q): got error %v, want one with %q", text, err, want)
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
			t.Errorf("delivery as %s: got %q, want %q", kind.seriesName(), got, want)
		}
	}
}

func TestMergedListsAreNewestFirst(t *testing.T) {
	lists := idLists{{"9", "4", "1"}, {"8"}, {"7", "6", "5", "3", "2"}}
	if got, want := lists.takeNewest(6), []string{"9", "8", "7", "6", "5", "4"}; !slices.Equal(got, want) {
		t.Errorf("newest of many: got %v, want %v", got, want)
	}

	shortLists := idLists{{"2"}, {"1"}}
	if got, want := shortLists.takeNewest(6), []string{"2", "1"}; !slices.Equal(got, want) {
		t.Errorf("newest of two: got %v, want %v", got, want)
	}
}
