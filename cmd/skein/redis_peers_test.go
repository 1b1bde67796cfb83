//go:build peers

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	goredis "github.com/redis/go-redis/v9"

	skeinv1 "github.com/skein-feed/skein/proto/skein/v1"
	"github.com/skein-feed/skein/proto/skein/v1/skeinv1connect"
)

// redisPeer is a redis-server, with a client of it.
type redisPeer struct {
	*goredis.Client
	addr string
}

// errRedisEnded says that a redis-server ended instead of starting.
var errRedisEnded = errors.New("redis-server ended")

// startRedisPeer starts a redis-server on a directory, and waits until it has loaded the files
// there. The server ends with the test.
func startRedisPeer(t *testing.T, dir string, args ...string) (*redisPeer, error) {
	t.Helper()
	ports, err := findFreePorts(23000, 1)
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(ports[0])
	addr := net.JoinHostPort("127.0.0.1", port)

	args = append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--daemonize", "no", "--save", ""}, args...)
	cmd := exec.CommandContext(t.Context(), "redis-server", args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed, or could not load
		close(ended)
	}()

	client := goredis.NewClient(&goredis.Options{Addr: addr, Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() {
		_ = client.Close()
		_ = cmd.Process.Kill()
		<-ended
	})

	hasEnded := false
	err = eventually(t.Context(), func(ctx context.Context) error {
		select {
		case <-ended:
			hasEnded = true
			return nil
		default:
			return client.Ping(ctx).Err()
		}
	})
	if hasEnded {
		err = errRedisEnded
	}
	return &redisPeer{client, addr}, err
}

// redisImport runs imports from a Redis into a service with a mapping.
type redisImport struct {
	t           *testing.T
	mappingPath string
	redisURL    string
	serviceURL  string
}

// newRedisImport writes the mapping to a file.
func newRedisImport(t *testing.T, redis *redisPeer, service *serverProcess, mapping string) *redisImport {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mapping.yaml")
	if err := os.WriteFile(path, []byte(mapping), 0o600); err != nil {
		t.Fatal(err)
	}
	return &redisImport{t: t, mappingPath: path, redisURL: "redis://" + redis.addr, serviceURL: "http://" + service.addr}
}

// newCommand returns `skein import redis` with more arguments.
func (i *redisImport) newCommand(ctx context.Context, args ...string) *exec.Cmd {
	command := []string{
		"import", "redis", i.mappingPath, "--redis", i.redisURL, "--server", i.serviceURL,
		"--commands", "0", "--max-rejects", "100%", "--json",
	}
	return exec.CommandContext(ctx, "skein", append(command, args...)...)
}

// importReport is what an import prints.
type importReport struct {
	Found, New, Published, Rejected, Gone, Run uint64
	Scanned, Unmatched, Vanished               uint64
	// Rejects is the path of the file that lists the rejected elements; empty if there are none.
	Rejects string

	// Differences are what the comparison found, if there was one.
	Differences differences `json:"-"`
	// Text is everything that the command wrote to its output and its errors.
	Text string `json:"-"`
	Code int    `json:"-"` // exit code
}

// differences counts what a comparison of Redis with the service found.
type differences struct {
	Total int
	// Missing are only in Redis, and Extra only in the service.
	Missing, Extra                      int
	OtherTimes, OtherTexts, OtherCounts int
}

// differencesLine matches the line with which a comparison ends. Its groups are the fields of
// differences.
var differencesLine = regexp.MustCompile(`: (\d+) differences ` +
	`\((\d+) missing, (\d+) extra, (\d+) other times, (\d+) other texts, (\d+) other counts, 0 out of order\)`)

// parseDifferences reads the line with which a comparison ends. It reports whether text has such a
// line.
func parseDifferences(t *testing.T, text string) (d differences, found bool) {
	t.Helper()
	groups := differencesLine.FindStringSubmatch(text)
	if groups == nil {
		return d, false
	}

	fields := []*int{&d.Total, &d.Missing, &d.Extra, &d.OtherTimes, &d.OtherTexts, &d.OtherCounts}
	for n, field := range fields {
		count, err := strconv.Atoi(groups[n+1])
		if err != nil {
			t.Fatal(err)
		}
		*field = count
	}
	return d, true
}

// anyExitCode stands for any exit code.
const anyExitCode = -1

// run runs the command to its end and checks the exit code.
func (i *redisImport) run(wantCode int, args ...string) importReport {
	i.t.Helper()
	cmd := i.newCommand(i.t.Context(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout = &stdout
	cmd.Stderr = &stderr
	err := cmd.Run()
	code := cmd.ProcessState.ExitCode()
	if code != wantCode && wantCode != anyExitCode {
		i.t.Fatalf("%v: exit code %d, want %d: %v\n%s%s", args, code, wantCode, err, stdout.String(), stderr.String())
	}

	// The first line of the output is the report as JSON. A command that fails early prints none.
	report := importReport{Text: stdout.String() + stderr.String(), Code: code}
	line, _, hasLine := strings.Cut(stdout.String(), "\n")
	if hasLine && strings.HasPrefix(line, "{") {
		if err := json.Unmarshal([]byte(line), &report); err != nil {
			i.t.Fatal(err)
		}
	}

	// A command that succeeds must have compared if it was asked to.
	found := false
	report.Differences, found = parseDifferences(i.t, stderr.String())
	mustCompare := len(args) > 0 && strings.HasPrefix(args[0], "--compare")
	if !found && code == 0 && mustCompare {
		i.t.Fatalf("%v: got no line about differences, want one:\n%s", args, stderr.String())
	}
	return report
}

// manyMapping has a rule for each structure of Redis that can be imported.
const manyMapping = `rules:
- {means: follows, key: "followers:{user}", member: "{follower}", score: ms}
- {means: reactions, key: "likes:{item}", member: "{user}"}
- {means: plays, key: "plays:{user}", field: "{item}", value: "{time:s}"}
- {means: served, key: "served:{user}", element: "{item}"}
- {means: blocks, key: "blocks:{user}", member: "{blocked}"}
`

// maxSmallSize is the most elements that fillRedis writes to a structure other than followers.
const maxSmallSize = 2000

// fillRedis writes every structure in its small and its large encoding, and some values that cannot
// be imported. The largest set of followers has large members, at least maxSmallSize.
func fillRedis(t *testing.T, r *redisPeer, large int) {
	t.Helper()
	ctx := t.Context()
	mustSucceed := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	// Write structures of several sizes. The times have fractions, which an import must not lose.
	const baseTime = 1_600_000_000_000 // in milliseconds
	for _, size := range []int{1, 10, 200, large} {
		pipe := r.Pipeline()
		for n := range size {
			pipe.ZAdd(ctx, fmt.Sprintf("followers:z%d", size), goredis.Z{Score: baseTime + float64(n) + 0.25, Member: fmt.Sprintf("u%d", n)})
			if n >= maxSmallSize {
				continue
			}
			pipe.SAdd(ctx, fmt.Sprintf("likes:numbers%d", size), n)
			pipe.SAdd(ctx, fmt.Sprintf("likes:names%d", size), fmt.Sprintf("u%d", n))
			pipe.HSet(ctx, fmt.Sprintf("plays:h%d", size), fmt.Sprintf("i%d", n), fmt.Sprintf("%d.5", baseTime/1000+n))
			pipe.RPush(ctx, fmt.Sprintf("served:l%d", size), fmt.Sprintf("i%d", n))
		}
		_, err := pipe.Exec(ctx)
		mustSucceed(err)
	}

	// Write six values that cannot be imported: five followers, and a key of another type.
	mustSucceed(r.ZAdd(ctx, "followers:bad",
		goredis.Z{Score: baseTime, Member: "\xff\x00"},
		goredis.Z{Score: math.Inf(1), Member: "inf"},
		goredis.Z{Score: -5, Member: "early"},
		goredis.Z{Score: baseTime, Member: "bad"}, // a user who follows themself
		goredis.Z{Score: baseTime, Member: strings.Repeat("x", 129)},
	).Err())
	mustSucceed(r.Set(ctx, "followers:string", "x", 0).Err())

	// No rule matches this key.
	mustSucceed(r.Set(ctx, "session:1", "x", 0).Err())
	// The block ends the follow of u1.
	mustSucceed(r.SAdd(ctx, "blocks:u1", "z10").Err())

	// These keys expire before they can be imported.
	for n := range 50 {
		key := fmt.Sprintf("followers:gone%d", n)
		mustSucceed(r.ZAdd(ctx, key, goredis.Z{Score: baseTime, Member: "u1"}).Err())
		mustSucceed(r.PExpire(ctx, key, time.Millisecond).Err())
	}

	largeNumbers := fmt.Sprintf("likes:numbers%d", large)
	largeHash := fmt.Sprintf("plays:h%d", large)
	for key, want := range map[string]string{
		"followers:z10":   "listpack",
		"followers:z200":  "skiplist",
		"likes:numbers10": "intset",
		largeNumbers:      "hashtable",
		"plays:h10":       "listpack",
		largeHash:         "hashtable",
	} {
		if got := r.ObjectEncoding(ctx, key).Val(); got != want {
			t.Errorf("encoding of %s: got %s, want %s", key, got, want)
		}
	}
}

// TestRedisImportContinuesAndIsComplete imports all of a Redis database, interrupted by kill -9 or
// not. A second run must have nothing to publish. A comparison must find no difference at first,
// and then each difference that the test makes.
func TestRedisImportContinuesAndIsComplete(t *testing.T) {
	const large = 5000
	r, err := startRedisPeer(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	fillRedis(t, r, large)
	service := startServer(t.Context(), t)
	i := newRedisImport(t, r, service, manyMapping)

	// Kill six imports. The end of the context kills the command, unless the command is faster.
	rng := rand.New(rand.NewPCG(5, 0))
	for range 6 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(600))*time.Millisecond)
		_ = i.newCommand(ctx, "--page", "100").Run()
		cancel()
	}

	// The next import must continue and find everything: the followers, the other four structures,
	// and one block.
	firstRun := i.run(0, "--compare", "--page", "100")
	const wantFollowers = 1 + 10 + 200 + large
	const wantOthers = 4 * (1 + 10 + 200 + maxSmallSize)
	if want := uint64(wantFollowers + wantOthers + 1); firstRun.Found != want || firstRun.Rejected != 6 {
		t.Errorf("first run: found %d and rejected %d, want %d and 6", firstRun.Found, firstRun.Rejected, want)
	}
	if firstRun.Differences != (differences{}) {
		t.Errorf("first run: got differences %+v, want none", firstRun.Differences)
	}

	secondRun := i.run(0, "--compare")
	if secondRun.New != 0 || secondRun.Gone != 0 || secondRun.Found != firstRun.Found {
		t.Errorf("second run: got %+v, want nothing new or gone, and %d found", secondRun, firstRun.Found)
	}
	if secondRun.Differences != (differences{}) {
		t.Errorf("second run: got differences %+v, want none", secondRun.Differences)
	}

	// Change Redis. A comparison must find each change. It sees a follow from both sides, and so
	// counts each of them twice.
	ctx := t.Context()
	for _, err := range []error{
		r.ZAdd(ctx, "followers:z200", goredis.Z{Score: 1, Member: "missing"}).Err(),
		r.ZRem(ctx, "followers:z200", "u7").Err(),
		r.ZIncrBy(ctx, "followers:z200", 1, "u8").Err(),
		r.SRem(ctx, "likes:names10", "u1").Err(),
		r.SAdd(ctx, "blocks:u2", "z10").Err(), // a block, which also ends the follow of u2
		r.Del(ctx, "followers:z1").Err(),      // a list that Redis has no longer
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := differences{
		Total:       12,
		Missing:     2 + 1,     // the follow of "missing" and the block
		Extra:       2 + 2 + 2, // the follows of u7 and u2, and the one of followers:z1
		OtherTimes:  2,         // the follow of u8
		OtherCounts: 1,         // the likes of names10
	}
	changed := i.run(1, "--compare-only")
	if changed.Differences != want {
		t.Errorf("after the changes: got differences %+v, want %+v\n%s", changed.Differences, want, changed.Text)
	}

	tolerant := i.run(1, "--compare-only", "--compare-tolerance", "1ms")
	want.Total -= want.OtherTimes
	want.OtherTimes = 0
	if tolerant.Differences != want {
		t.Errorf("with a tolerance of a millisecond: got differences %+v, want %+v", tolerant.Differences, want)
	}
}

// TestRedisBoardWithoutTitleIsImported demands that a board without a title is a board, whatever
// pattern the title has. A comparison must report what cannot be imported as missing, like what was
// not imported.
func TestRedisBoardWithoutTitleIsImported(t *testing.T) {
	r, err := startRedisPeer(t, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if err := r.HSet(ctx, "boards:ann", "bread", "", "cakes", "Cakes: sweet").Err(); err != nil {
		t.Fatal(err)
	}
	const mapping = "rules:\n- {means: boards, key: \"boards:{owner}\", field: \"{board}\", value: \"{title...}\"}\n"
	i := newRedisImport(t, r, startServer(t.Context(), t), mapping)

	// Both boards are imported, also the one with an empty title.
	imported := i.run(0, "--compare", "--max-rejects", "0")
	if imported.Found != 2 || imported.Rejected != 0 || imported.Differences != (differences{}) {
		t.Errorf("import with an empty title: got %+v, want 2 found, none rejected, and no differences", imported)
	}

	// Add a board whose id is invalid.
	if err := r.HSet(ctx, "boards:ann", "no id", "x").Err(); err != nil {
		t.Fatal(err)
	}
	checkText := func(report importReport, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(report.Text, want) {
				t.Errorf("the report does not contain %q:\n%s", want, report.Text)
			}
		}
	}

	// A comparison fails if it may reject no record. 33 percent of three records are less than one.
	const missingBoard = `difference: boards:ann no id=x: Redis has it, skein cannot: rule 1: board_created.board.board_id must be`
	for _, maxRejects := range []string{"0", "33%"} {
		report := i.run(1, "--compare-only", "--max-rejects", maxRejects)
		checkText(report, missingBoard, "1 of 3 records were rejected, and --max-rejects allows only 0")
	}

	// A comparison reports the board, and succeeds, if one reject is allowed.
	checkText(i.run(0, "--compare-only", "--max-rejects", "1"), missingBoard)

	// An import fails like a comparison.
	rejecting := i.run(1, "--max-rejects", "0")
	if rejecting.Rejected != 1 {
		t.Errorf("import of an invalid board: got %d rejected, want 1", rejecting.Rejected)
	}
	checkText(rejecting, "1 of 3 records were rejected")
}

// filesMapping takes every key of whatever name.
const filesMapping = `rules:
- {means: follows, key: "{user...}", member: "{follower...}", score: ms}
- {means: reactions, key: "{item...}", member: "{user...}"}
- {means: plays, key: "{user...}", field: "{item...}"}
- {means: served, key: "{user...}", element: "{item...}"}
`

// redisFilesVar names the environment variable with a folder of RDB and AOF files. Its folder
// expected/ says what they contain.
const redisFilesVar = "SKEIN_REDIS_DATA"

// expectedKey is a key that a file contains.
type expectedKey struct {
	Key   string          `json:"key"`
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

// TestRedisFilesAreImportedOrRejected demands that every member and score of every sorted set in
// files that Redis loads is in the service or in the rejects, and that the comparison finds only
// the differences that the test makes.
func TestRedisFilesAreImportedOrRejected(t *testing.T) {
	folder := os.Getenv(redisFilesVar)
	if folder == "" {
		t.Logf("LEFT OUT: %s names no folder with RDB and AOF files", redisFilesVar)
		return
	}

	var files []string
	for _, pattern := range []string{"*/*.rdb", "*/*.aof"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}

	var totals fileTotals
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { totals.importFile(t, folder, file) })
	}

	t.Logf("%d files, %d loaded with %d databases and %d keys; %d sorted sets with %d members: %d imported with their scores, "+
		"%d rejected; %d differences found of %d seeded", len(files), totals.loaded, totals.databases, totals.keys, totals.sets, totals.members,
		totals.imported, totals.rejected, totals.differencesFound, totals.differencesMade)
	if totals.loaded == 0 {
		t.Error("Redis loaded none of the files")
	}
	if sum := totals.imported + totals.rejected; totals.members != sum {
		t.Errorf("%d members are imported or rejected, want all %d", sum, totals.members)
	}
	if totals.differencesFound != totals.differencesMade {
		t.Errorf("found %d differences, want the %d that the test made", totals.differencesFound, totals.differencesMade)
	}
}

// fileTotals counts what [TestRedisFilesAreImportedOrRejected] did with all files.
type fileTotals struct {
	loaded    int // files that Redis has loaded
	databases int
	keys      int

	// sets counts the sorted sets, and members their members, each of which is imported or
	// rejected.
	sets, members, imported, rejected int

	differencesMade, differencesFound int
}

// importFile loads a file into a Redis and imports all of its databases.
func (totals *fileTotals) importFile(t *testing.T, folder, file string) {
	// The folder expected/ has a file for each file that Redis can load.
	name := filepath.Base(filepath.Dir(file)) + "__" + filepath.Base(file)
	data, err := os.ReadFile(filepath.Join(folder, "expected", name+".json.gz"))
	wantLoaded := err == nil

	// Redis loads a file of a fixed name from its directory.
	dir := t.TempDir()
	loadedName := "dump.rdb"
	var args []string
	if strings.HasSuffix(file, ".aof") {
		loadedName = "appendonly.aof"
		args = []string{"--appendonly", "yes"}
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, loadedName), content, 0o600); err != nil {
		t.Fatal(err)
	}

	r, err := startRedisPeer(t, dir, args...)
	if err != nil && !wantLoaded {
		t.Logf("%s is not loaded: %v", name, err)
		return
	}
	if err != nil {
		t.Fatalf("%s is not loaded: %v", name, err)
	}
	if !wantLoaded {
		t.Fatalf("%s is loaded, and the folder expected does not say what it contains", name)
	}
	totals.loaded++

	unpacked, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	var databases map[string][]expectedKey
	if err := json.NewDecoder(unpacked).Decode(&databases); err != nil {
		t.Fatal(err)
	}
	for db, keys := range databases {
		totals.databases++
		totals.keys += len(keys)
		totals.importDatabase(t, r, db, keys)
	}
}

// importDatabase imports one database of a file into a service of its own.
func (totals *fileTotals) importDatabase(t *testing.T, r *redisPeer, db string, keys []expectedKey) {
	service := startServer(t.Context(), t)
	i := newRedisImport(t, r, service, filesMapping)
	i.redisURL += "/" + db
	report := i.run(anyExitCode, "--compare")

	// All rejects are allowed, so an import fails exactly if it finds nothing that it can import.
	if hasFailed := report.Code != 0; hasFailed != (report.Found == 0) {
		t.Errorf("database %s: exit code %d with %d found\n%s", db, report.Code, report.Found, report.Text)
	}
	if report.Differences != (differences{}) {
		t.Errorf("database %s: got differences %+v, want none\n%s", db, report.Differences, report.Text)
	}
	if report.Scanned < uint64(len(keys)) {
		t.Errorf("database %s: got %d keys scanned, want at least %d", db, report.Scanned, len(keys))
	}

	rejected := readRejects(t, report.Rejects)
	graph := skeinv1connect.NewGraphServiceClient(http.DefaultClient, i.serviceURL)
	for _, k := range keys {
		if k.Type != "zset" {
			continue
		}
		totals.sets++
		followTimes := readFollowTimes(t, graph, k.Key)
		totals.checkSortedSet(t, k, followTimes, rejected)
		totals.makeDifferences(t, r, db, k.Key, followTimes, i)
	}
}

// checkSortedSet checks that every member of a sorted set either follows in the service, since the
// time of its score, or is rejected, and that the service has no other followers.
func (totals *fileTotals) checkSortedSet(t *testing.T, k expectedKey, followTimes map[string]int64, rejected map[string]bool) {
	t.Helper()
	var pairs [][2]string // members and their scores
	if err := json.Unmarshal(k.Value, &pairs); err != nil {
		t.Fatal(err)
	}
	totals.members += len(pairs)

	isMember := map[string]bool{}
	for _, pair := range pairs {
		member, scoreText := pair[0], pair[1]
		isMember[member] = true
		score, err := strconv.ParseFloat(scoreText, 64)
		if err != nil {
			t.Fatal(err)
		}

		followTime, follows := followTimes[member]
		switch {
		case follows && followTime == int64(math.Round(score*1000)): // from milliseconds to microseconds
			totals.imported++
		case !follows && rejected[rejectKey(k.Key, member)]:
			totals.rejected++
		default:
			t.Errorf("%s: member %q with score %s: in the service %t since %d µs", k.Key, member, scoreText, follows, followTime)
		}
	}

	for follower := range followTimes {
		if !isMember[follower] {
			t.Errorf("%s: the service has the follower %q, which is no member", k.Key, follower)
		}
	}
}

// rejectKey returns the key of an element in what [readRejects] returns.
func rejectKey(key, element string) string { return key + "\t" + element }

// readRejects returns the rejected elements that a file of rejects lists, by their [rejectKey].
func readRejects(t *testing.T, path string) map[string]bool {
	t.Helper()
	rejected := map[string]bool{}
	if path == "" {
		return rejected
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	for line := range strings.Lines(string(text)) {
		// The second field of a line is the key, and the third is the element. Both may be quoted.
		fields := strings.SplitN(line, "\t", 4)
		for n := range fields {
			if unquoted, err := strconv.Unquote(fields[n]); err == nil {
				fields[n] = unquoted
			}
		}
		rejected[rejectKey(fields[1], fields[2])] = true
	}
	return rejected
}

// readFollowTimes returns all followers of a user, and since when they follow, in microseconds.
func readFollowTimes(t *testing.T, graph skeinv1connect.GraphServiceClient, user string) map[string]int64 {
	t.Helper()
	times := map[string]int64{}
	req := &skeinv1.ListFollowersRequest{UserId: user, PageSize: 1000}
	for {
		res, err := graph.ListFollowers(t.Context(), connect.NewRequest(req))
		if connect.CodeOf(err) == connect.CodeInvalidArgument {
			return times // the key of the sorted set is not a valid id, so nobody follows it
		}
		if err != nil {
			t.Fatal(err)
		}

		for _, e := range res.Msg.GetEntries() {
			times[e.GetUserId()] = e.GetFollowTime().AsTime().UnixMicro()
		}
		req.PageToken = res.Msg.GetNextPageToken()
		if req.PageToken == "" {
			return times
		}
	}
}

// makeDifferences changes a sorted set in three ways, one after the other. It checks that a
// comparison finds each change, and undoes it.
func (totals *fileTotals) makeDifferences(t *testing.T, r *redisPeer, db, key string, followTimes map[string]int64, i *redisImport) {
	t.Helper()
	if len(followTimes) == 0 {
		return
	}
	member := slices.Min(slices.Collect(maps.Keys(followTimes)))
	score := r.runInDatabase(t, db, "ZSCORE", key, member)

	// A comparison sees each follow from both sides, and so counts two differences.
	for _, change := range []struct {
		name     string
		do, undo []any
		want     differences
	}{
		{"added member", []any{"ZADD", key, "5", "seeded"}, []any{"ZREM", key, "seeded"}, differences{Total: 2, Missing: 2}},
		{"removed member", []any{"ZREM", key, member}, []any{"ZADD", key, score, member}, differences{Total: 2, Extra: 2}},
		{"changed score", []any{"ZADD", key, "7.5", member}, []any{"ZADD", key, score, member}, differences{Total: 2, OtherTimes: 2}},
	} {
		totals.differencesMade++
		r.runInDatabase(t, db, change.do...)
		report := i.run(1, "--compare-only")
		if report.Differences == change.want {
			totals.differencesFound++
		} else {
			t.Errorf("%s, %v: got differences %+v, want %+v\n%s", change.name, change.do, report.Differences, change.want, report.Text)
		}
		r.runInDatabase(t, db, change.undo...)
	}

	// Nothing differs once all changes are undone.
	i.run(0, "--compare-only")
}

// runInDatabase runs a command in a database, and returns the answer if it is a text.
func (r *redisPeer) runInDatabase(t *testing.T, db string, args ...any) string {
	t.Helper()
	number, err := strconv.Atoi(db)
	if err != nil {
		t.Fatal(err)
	}

	conn := r.Conn()
	defer conn.Close()
	if err := conn.Select(t.Context(), number).Err(); err != nil {
		t.Fatal(err)
	}

	// ZADD and ZREM answer a number, for which Text returns an error.
	answer, err := conn.Do(t.Context(), args...).Text()
	if err != nil && !strings.Contains(err.Error(), "unexpected type") {
		t.Fatal(err)
	}
	return answer
}
