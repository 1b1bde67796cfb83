package stores

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/skein-feed/skein/cmd/skein-bench/internal/workload"
	"github.com/skein-feed/skein/events"
	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
)

const (
	// celebrityCount is the number of boards that have more followers than the threshold, at the
	// default number of readers.
	celebrityCount = 20
	// celebritySkew and boardSkew are the exponents of the two power laws of followers: of the
	// boards above the threshold, and of the others, of which the first has a hundredth of the
	// readers. One law for all would leave so many boards just below the threshold that the
	// deliveries of all posts could not be measured in minutes.
	celebritySkew, boardSkew = 0.7, 0.75
	// postSkew is the exponent of the power law of made-up posts over boards.
	postSkew = 0.2
)

// The number of readers of each kind whose pages are measured, and how many boards each of them
// follows.
const (
	lightReaderCount, followsPerLightReader = 50, 50
	heavyReaderCount, followsPerHeavyReader = 8, 1000
)

// feedPost is a post: a pin of a user who is named like the board.
type feedPost struct {
	id        string
	createdAt events.Micros
	board     uint32
}

// feedWorld has the authors and the follows. Boards are users in skein's words: what they post are
// their pins, and to follow one is to follow that user. They are numbered by their popularity, the
// most popular first, so that the celebrities are the first ones.
type feedWorld struct {
	boards []string
	// posts are in the order of time.
	posts []feedPost
	// readers is the number of readers who follow boards and read before the first post, so that
	// they have inboxes. The numbers of the readers whose pages are measured come after theirs.
	readers int
	// follows are in the order of time; the followee is a board.
	follows []workload.Edge
	// inboxesPerBoard is how many readers with an inbox follow each board.
	inboxesPerBoard []int
	// light, heavy and returning are the readers whose pages are measured. The returning ones do
	// not read before the first post.
	light, heavy, returning []feedReader
}

// feedReader is a reader whose pages are measured.
type feedReader struct {
	number uint32
	// boards are those followed, in rising order.
	boards []uint32
}

// newFeedWorld makes the followers of the boards of some posts, always the same.
func newFeedWorld(boards []string, posts []feedPost, readers int) (*feedWorld, error) {
	if len(boards) < 2*celebrityCount+2*followsPerLightReader || len(posts) == 0 {
		return nil, fmt.Errorf("%d posts on %d boards are too few", len(posts), len(boards))
	}
	w := &feedWorld{boards: boards, posts: posts, readers: readers, inboxesPerBoard: make([]int, len(boards))}
	r := rand.New(rand.NewPCG(7, 0))
	for board := range boards {
		// The followers of a board have equal distances, from a random one on. The step and the
		// number of readers are coprime, so none occurs twice.
		n := boardFollowerCount(board, readers)
		at := r.IntN(readers)
		step := workload.Coprime(r, readers)
		for range n {
			w.addFollow(uint32(at), uint32(board))
			at = (at + step) % readers
		}
		w.inboxesPerBoard[board] += n
	}

	// The readers whose pages are measured follow the most popular boards and random other ones.
	next := uint32(readers)
	makeReaders := func(n, popular, others int) (made []feedReader) {
		others = min(others, (len(boards)-celebrityCount)/2)
		for range n {
			f := feedReader{number: next}
			next++
			for board := range popular {
				f.boards = append(f.boards, uint32(board))
			}
			for _, board := range r.Perm(len(boards) - celebrityCount)[:others] {
				f.boards = append(f.boards, uint32(celebrityCount+board))
			}
			slices.Sort(f.boards)
			for _, board := range f.boards {
				w.addFollow(f.number, board)
			}
			made = append(made, f)
		}
		return made
	}
	w.light = makeReaders(lightReaderCount, 0, followsPerLightReader)
	w.heavy = makeReaders(heavyReaderCount, celebrityCount, followsPerHeavyReader-celebrityCount)
	for _, f := range slices.Concat(w.light, w.heavy) { // the returning readers have no inbox
		for _, board := range f.boards {
			w.inboxesPerBoard[board]++
		}
	}
	w.returning = makeReaders(heavyReaderCount, celebrityCount, followsPerHeavyReader-celebrityCount)

	r.Shuffle(len(w.follows), func(i, j int) { w.follows[i], w.follows[j] = w.follows[j], w.follows[i] })
	return w, nil
}

// addFollow lets a reader follow a board.
func (w *feedWorld) addFollow(reader, board uint32) {
	w.follows = append(w.follows, workload.Edge{Follower: reader, Followee: board})
}

// boardFollowerCount returns how many of the readers follow a board.
func boardFollowerCount(board, readers int) int {
	n := float64(readers) * math.Pow(float64(board+1), -celebritySkew)
	if board >= celebrityCount {
		n = float64(readers) / 100 * math.Pow(float64(board-celebrityCount+1), -boardSkew)
	}
	return max(1, int(n))
}

// inboxCount returns how many readers have an inbox before the first post. They are numbered from
// 0.
func (w *feedWorld) inboxCount() int { return w.readers + len(w.light) + len(w.heavy) }

// startTime is a time before the first post.
func (w *feedWorld) startTime() events.Micros {
	return w.posts[0].createdAt - events.Micros((24 * time.Hour).Microseconds())
}

// countDeliveries returns how many inboxes some posts come to if all are pushed.
func (w *feedWorld) countDeliveries(posts []feedPost) (n int) {
	for i := range posts {
		n += w.inboxesPerBoard[posts[i].board]
	}
	return n
}

// postRange is a range of posts by their numbers. The post with the number to is not part of it.
type postRange struct{ from, to int }

func (w *feedWorld) postsIn(r postRange) []feedPost { return w.posts[r.from:r.to] }

// lastRuns returns runs of the last posts, which follow each other. Each has at least the given
// number of deliveries, unless there are too few posts.
func (w *feedWorld) lastRuns(runs, deliveries int) (made []postRange) {
	to := len(w.posts)
	for ; len(made) < runs && to > 0; to = made[len(made)-1].from {
		from := to
		for n := 0; from > 0 && n < deliveries; from-- {
			n += w.inboxesPerBoard[w.posts[from-1].board]
		}
		made = append(made, postRange{from, to})
	}
	slices.Reverse(made)
	return made
}

// newestPosts returns the numbers of the newest n posts on some boards, newest first. The boards
// must be in rising order.
func (w *feedWorld) newestPosts(boards []uint32, n int) (posts []int) {
	for i := len(w.posts) - 1; i >= 0 && len(posts) < n; i-- {
		if _, ok := slices.BinarySearch(boards, w.posts[i].board); ok {
			posts = append(posts, i)
		}
	}
	return posts
}

// renumberByPopularity numbers boards anew by falling popularity.
func renumberByPopularity(boards []string, popularity []int, posts []feedPost) []string {
	byRank := make([]int, len(boards))
	for i := range byRank {
		byRank[i] = i
	}
	slices.SortStableFunc(byRank, func(a, b int) int { return popularity[b] - popularity[a] })

	ranked := make([]string, len(boards))
	rank := make([]uint32, len(boards))
	for i, board := range byRank {
		ranked[i] = boards[board]
		rank[board] = uint32(i)
	}
	for i := range posts {
		posts[i].board = rank[posts[i].board]
	}
	return ranked
}

// makePosts makes up posts, one a second.
func makePosts(boards, posts int) ([]string, []feedPost) {
	r := rand.New(rand.NewPCG(8, 0))
	names := make([]string, boards)
	popularity := make([]int, boards)
	for i, p := range r.Perm(boards) {
		names[i] = "board" + strconv.Itoa(i)
		popularity[i] = p
	}

	made := make([]feedPost, posts)
	for i := range made {
		made[i] = feedPost{
			id: strconv.FormatInt(int64(i)+1<<20, 36), createdAt: workload.FirstFollow + events.Micros(i)*1_000_000,
			board: uint32(workload.PowerLaw(r, boards, postSkew)),
		}
	}
	return renumberByPopularity(names, popularity, made), made
}

// readPosts reads the last n posts from a file, or all if there are fewer. The popularity of a
// board is the sum of the scores of all its posts in the file.
func readPosts(path string, n int) (boards []string, posts []feedPost, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	in := bufio.NewReaderSize(file, 1<<20)

	// A file may be compressed with zstd. Files of less than four bytes are not.
	var text io.Reader = in
	magic, _ := in.Peek(4)
	if string(magic) == "\x28\xb5\x2f\xfd" {
		unpacked, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		defer unpacked.Close()
		text = unpacked
	}
	boards, popularity, posts, err := parsePosts(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(posts) > n {
		posts = slices.Clone(posts[len(posts)-n:])
	}
	return renumberByPopularity(boards, popularity, posts), posts, nil
}

// parsePosts parses a table that begins with a line of names. The posts must be in the order of
// time.
func parsePosts(text io.Reader) (boards []string, popularity []int, posts []feedPost, err error) {
	table := csv.NewReader(text)
	table.ReuseRecord = true
	head, err := table.Read()
	if err != nil {
		return nil, nil, nil, err
	}
	var columns [4]int
	for i, name := range []string{"created_utc", "board", "post_id", "score"} {
		if columns[i] = slices.Index(head, name); columns[i] < 0 {
			return nil, nil, nil, fmt.Errorf("no column is named %s", name)
		}
	}

	numbers := make(map[string]uint32)
	for {
		line, err := table.Read()
		if errors.Is(err, io.EOF) {
			return boards, popularity, posts, nil
		}
		if err != nil {
			return nil, nil, nil, err
		}
		seconds, err := strconv.ParseInt(line[columns[0]], 10, 64)
		if err != nil {
			return nil, nil, nil, err
		}
		score, err := strconv.Atoi(line[columns[3]])
		if err != nil {
			return nil, nil, nil, err
		}
		board, known := numbers[line[columns[1]]]
		if !known {
			name := strings.Clone(line[columns[1]])
			board = uint32(len(boards))
			numbers[name] = board
			boards = append(boards, name)
			popularity = append(popularity, 0)
		}
		popularity[board] += score
		at := events.Micros(seconds) * 1_000_000
		if len(posts) > 0 && at < posts[len(posts)-1].createdAt {
			return nil, nil, nil, fmt.Errorf("post %s is older than the one before it", line[columns[2]])
		}

		// The id is cloned, because it would keep the whole line in memory.
		posts = append(posts, feedPost{id: strings.Clone(line[columns[2]]), createdAt: at, board: board})
	}
}

// followEvent returns the event that a reader follows a board.
func (w *feedWorld) followEvent(e workload.Edge) *skeinv1.Event {
	return workload.UserFollowed(e.Follower, w.boards[e.Followee])
}

// FeedEvents returns about n events of home feeds: follows of boards, and then pins.
func FeedEvents(n int) iter.Seq[*skeinv1.Event] {
	return func(yield func(*skeinv1.Event) bool) {
		boards, posts := makePosts(max(200, n/400), n/3)
		w, err := newFeedWorld(boards, posts, max(200, n/10))
		if err != nil {
			panic(err) // never: there are enough boards and posts
		}
		for _, e := range w.follows {
			if !yield(w.followEvent(e)) {
				return
			}
		}
		for _, p := range w.posts {
			if !yield(workload.PinCreated(w.boards[p.board], p.id)) {
				return
			}
		}
	}
}
