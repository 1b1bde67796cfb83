//go:build peers

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	addr := l.Addr().String()
	l.Close()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}

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
	return &redisImport{t, path, "redis://" + redis.addr, "http://" + service.addr}
}

// newCommand returns `skein import redis` with more arguments.
func (i *redisImport) newCommand(ctx context.Context, args ...string) *exec.Cmd {
	args = append([]string{"import", "redis", i.mappingPath, "--redis", i.redisURL, "--server", i.serviceURL, "--commands", "0", "--max-rejects", "100%", "--json"}, args...)
	return exec.CommandContext(ctx, "skein", args...)
}

// importReport is what an import prints.
type importReport struct {
	Found, New, Published, Rejected, Gone, Run uint64
	Scanned, Unmatched, Vanished               uint64
	Rejects                                    string
	// Differences are what the comparison found: in all, missing, extra, other times, other texts
	// and other counts.
	Differences [6]int
	Text        string
	Code        int
}

var differenceCounts = regexp.MustCompile(`: (\d+) differences \((\d+) missing, (\d+) extra, (\d+) other times, (\d+) other texts, (\d+) other counts, 0 out of order\)`)

// anyExitCode stands for any exit code.
const anyExitCode = -1

// run runs the command to its end and checks the exit code.
func (i *redisImport) run(code int, args ...string) importReport {
	i.t.Helper()
	cmd := i.newCommand(i.t.Context(), args...)
	var out, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code && code != anyExitCode {
		i.t.Fatalf("%v: exit code %d, want %d: %v\n%s%s", args, got, code, err, out.String(), text.String())
	}

	r := importReport{Text: out.String() + text.String(), Code: cmd.ProcessState.ExitCode()}
	if line, _, ok := strings.Cut(out.String(), "\n"); ok && strings.HasPrefix(line, "{") {
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			i.t.Fatal(err)
		}
	}
	if found := differenceCounts.FindStringSubmatch(text.String()); found != nil {
		for n := range r.Differences {
			r.Differences[n], _ = strconv.Atoi(found[n+1])
		}
	} else if code == 0 && len(args) > 0 && strings.HasPrefix(args[0], "--compare") {
		i.t.Fatalf("nothing was compared:\n%s", text.String())
	}
	return r
}

const manyMapping = `rules:
- {means: follows, key: "followers:{user}", member: "{follower}", score: ms}
- {means: reactions, key: "likes:{item}", member: "{user}"}
- {means: plays, key: "plays:{user}", field: "{item}", value: "{time:s}"}
- {means: served, key: "served:{user}", element: "{item}"}
- {means: blocks, key: "blocks:{user}", member: "{blocked}"}
`

// fillRedis writes every structure in its small and its large encoding, and some values that cannot
// be imported.
func fillRedis(t *testing.T, r *redisPeer, large int) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	const baseTime = 1_600_000_000_000
	for _, size := range []int{1, 10, 200, large} {
		pipe := r.Pipeline()
		for n := range size {
			pipe.ZAdd(ctx, fmt.Sprintf("followers:z%d", size), goredis.Z{Score: baseTime + float64(n) + 0.25, Member: fmt.Sprintf("u%d", n)})
			if n >= 2000 {
				continue
			}
			pipe.SAdd(ctx, fmt.Sprintf("likes:numbers%d", size), n)
			pipe.SAdd(ctx, fmt.Sprintf("likes:names%d", size), fmt.Sprintf("u%d", n))
			pipe.HSet(ctx, fmt.Sprintf("plays:h%d", size), fmt.Sprintf("i%d", n), fmt.Sprintf("%d.5", 1_600_000_000+n))
			pipe.RPush(ctx, fmt.Sprintf("served:l%d", size), fmt.Sprintf("i%d", n))
		}
		_, err := pipe.Exec(ctx)
		must(err)
	}
	must(r.ZAdd(ctx, "followers:bad", goredis.Z{Score: baseTime, Member: "\xff\x00"}, goredis.Z{Score: math.Inf(1), Member: "inf"},
		goredis.Z{Score: -5, Member: "early"}, goredis.Z{Score: baseTime, Member: "bad"}, goredis.Z{Score: baseTime, Member: strings.Repeat("x", 129)}).Err())
	must(r.Set(ctx, "followers:string", "x", 0).Err())
	must(r.Set(ctx, "session:1", "x", 0).Err())
	must(r.SAdd(ctx, "blocks:u1", "z10").Err()) // this ends the follow of u1
	for n := range 50 {
		must(r.ZAdd(ctx, fmt.Sprintf("followers:gone%d", n), goredis.Z{Score: baseTime, Member: "u1"}).Err())
		must(r.PExpire(ctx, fmt.Sprintf("followers:gone%d", n), time.Millisecond).Err())
	}

	var encodings []string
	for _, key := range []string{"followers:z10", "followers:z200", "likes:numbers10", "likes:numbers2000", "plays:h10", "plays:h2000"} {
		encodings = append(encodings, r.ObjectEncoding(ctx, strings.Replace(key, "2000", strconv.Itoa(large), 1)).Val())
	}
	if got, want := fmt.Sprint(encodings), "[listpack skiplist intset hashtable listpack hashtable]"; got != want {
		t.Errorf("encodings %s, want %s", got, want)
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
	rng := rand.New(rand.NewPCG(5, 0))
	for range 6 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(600))*time.Millisecond)
		_ = i.newCommand(ctx, "--page", "100").Run() // the end of the context kills it
		cancel()
	}

	got := i.run(0, "--compare", "--page", "100")
	// Served items, likes and plays of 1, 10, 200 and 2000, numbers and names; one block.
	if want := uint64(211 + large + 4*2211 + 1); got.Found != want || got.Rejected != 6 {
		t.Errorf("found %d, want %d; rejected %d, want 6", got.Found, want, got.Rejected)
	}

	secondRun := i.run(0, "--compare")
	if secondRun.New != 0 || secondRun.Gone != 0 || secondRun.Found != got.Found {
		t.Errorf("the second run: %+v", secondRun)
	}

	ctx := t.Context()
	for _, err := range []error{
		r.ZAdd(ctx, "followers:z200", goredis.Z{Score: 1, Member: "missing"}).Err(),
		r.ZRem(ctx, "followers:z200", "u7").Err(),
		r.ZIncrBy(ctx, "followers:z200", 1, "u8").Err(),
		r.SRem(ctx, "likes:names10", "u1").Err(),
		r.SAdd(ctx, "blocks:u2", "z10").Err(), // hides a follow, on both sides
		r.Del(ctx, "followers:z1").Err(),      // a list that Redis has no longer
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// Each follow is seen from both sides.
	if seeded := i.run(1, "--compare-only"); seeded.Differences != [6]int{12, 2 + 1, 2 + 2 + 2, 2, 0, 1} {
		t.Errorf("seeded differences: %v\n%s", seeded.Differences, seeded.Text)
	}
	if same := i.run(1, "--compare-only", "--compare-tolerance", "1ms"); same.Differences[3] != 0 {
		t.Errorf("times within the tolerance differ: %v", same.Differences)
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
	i := newRedisImport(t, r, startServer(t.Context(), t), "rules:\n- {means: boards, key: \"boards:{owner}\", field: \"{board}\", value: \"{title...}\"}\n")
	if got := i.run(0, "--compare", "--max-rejects", "0"); got.Found != 2 || got.Rejected != 0 || got.Differences != [6]int{} {
		t.Errorf("an empty title: %+v", got)
	}
	if err := r.HSet(ctx, "boards:ann", "no id", "x").Err(); err != nil {
		t.Fatal(err)
	}
	const lost = `difference: boards:ann no id=x: Redis has it, skein cannot: rule 1: board_created.board.board_id must be`
	for _, maxRejects := range []string{"0", "33%"} {
		if got := i.run(1, "--compare-only", "--max-rejects", maxRejects); !strings.Contains(got.Text, lost) ||
			!strings.Contains(got.Text, "1 of 3 records were rejected, and --max-rejects allows only 0") {
			t.Errorf("a board that was lost:\n%s", got.Text)
		}
	}
	if got := i.run(0, "--compare-only", "--max-rejects", "1"); !strings.Contains(got.Text, lost) {
		t.Errorf("a board that may be lost:\n%s", got.Text)
	}
	if got := i.run(1, "--max-rejects", "0"); got.Rejected != 1 || !strings.Contains(got.Text, "1 of 3 records were rejected") {
		t.Errorf("an import that rejects:\n%s", got.Text)
	}
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
	for _, glob := range []string{"*/*.rdb", "*/*.aof"} {
		found, err := filepath.Glob(filepath.Join(folder, glob))
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
	if totals.loaded == 0 || totals.members != totals.imported+totals.rejected || totals.differencesFound != totals.differencesMade {
		t.Errorf("not everything is accounted for: %+v", totals)
	}
}

type fileTotals struct {
	loaded, databases, keys, sets, members, imported, rejected, differencesMade, differencesFound int
}

// importFile loads a file into a Redis and imports all of its databases.
func (totals *fileTotals) importFile(t *testing.T, folder, file string) {
	name := filepath.Base(filepath.Dir(file)) + "__" + filepath.Base(file)
	data, err := os.ReadFile(filepath.Join(folder, "expected", name+".json.gz"))
	expected := err == nil
	dir := t.TempDir()
	copied, args := "dump.rdb", []string(nil)
	if strings.HasSuffix(file, ".aof") {
		copied, args = "appendonly.aof", []string{"--appendonly", "yes"}
	}
	content, rerr := os.ReadFile(file)
	if err := errors.Join(rerr, os.WriteFile(filepath.Join(dir, copied), content, 0o600)); err != nil {
		t.Fatal(err)
	}
	r, err := startRedisPeer(t, dir, args...)
	if err != nil && !expected {
		t.Logf("%s is not loaded: %v", name, err)
		return
	}
	if err != nil || !expected {
		t.Fatalf("%s: loaded: %v; expected to be: %t", name, err, expected)
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
	got := i.run(anyExitCode, "--compare")
	if failed := got.Code != 0; failed != (got.Found == 0) || got.Differences != [6]int{} {
		t.Errorf("database %s: exit code %d\n%s", db, got.Code, got.Text)
	}
	if got.Scanned < uint64(len(keys)) {
		t.Errorf("database %s: %d keys scanned of %d", db, got.Scanned, len(keys))
	}
	rejected := readRejects(t, got.Rejects)
	graph := skeinv1connect.NewGraphServiceClient(http.DefaultClient, i.serviceURL)
	for _, k := range keys {
		if k.Type != "zset" {
			continue
		}
		var pairs [][2]string
		if err := json.Unmarshal(k.Value, &pairs); err != nil {
			t.Fatal(err)
		}
		totals.sets++
		totals.members += len(pairs)
		times := readFollowTimes(t, graph, k.Key)
		for _, p := range pairs {
			score, err := strconv.ParseFloat(p[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			at, ok := times[p[0]]
			switch {
			case ok && at == int64(math.Round(score*1000)):
				totals.imported++
			case !ok && rejected[k.Key+"\t"+p[0]]:
				totals.rejected++
			default:
				t.Errorf("%s: member %q with score %s: in the service %t since %d µs", k.Key, p[0], p[1], ok, at)
			}
			delete(times, p[0])
		}
		if len(times) > 0 {
			t.Errorf("%s has members that nobody expects: %v", k.Key, times)
		}
		totals.makeDifferences(t, r, db, k.Key, readFollowTimes(t, graph, k.Key), i)
	}
}

// readRejects returns the rejected elements, by key and element.
func readRejects(t *testing.T, path string) map[string]bool {
	rejected := map[string]bool{}
	if path == "" {
		return rejected
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.SplitN(line, "\t", 4)
		for n := range fields {
			if plain, err := strconv.Unquote(fields[n]); err == nil {
				fields[n] = plain
			}
		}
		rejected[fields[1]+"\t"+fields[2]] = true
	}
	return rejected
}

// readFollowTimes returns all followers of a user, and since when they follow, in microseconds.
func readFollowTimes(t *testing.T, graph skeinv1connect.GraphServiceClient, user string) map[string]int64 {
	t.Helper()
	times := map[string]int64{}
	for token := ""; ; {
		res, err := graph.ListFollowers(t.Context(), connect.NewRequest(&skeinv1.ListFollowersRequest{
			UserId: user, PageSize: 1000, PageToken: token,
		}))
		if connect.CodeOf(err) == connect.CodeInvalidArgument {
			return times // the key is no id
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range res.Msg.GetEntries() {
			times[e.GetUserId()] = e.GetFollowTime().AsTime().UnixMicro()
		}
		if token = res.Msg.GetNextPageToken(); token == "" {
			return times
		}
	}
}

// makeDifferences changes a sorted set in three ways, one after the other. It checks that a
// comparison finds each change, and undoes it.
func (totals *fileTotals) makeDifferences(t *testing.T, r *redisPeer, db, key string, times map[string]int64, i *redisImport) {
	if len(times) == 0 {
		return
	}
	firstMember := ""
	for member := range times {
		if firstMember == "" || member < firstMember {
			firstMember = member
		}
	}
	score := r.runInDatabase(t, db, "ZSCORE", key, firstMember)
	for _, change := range []struct {
		do, undo []any
		at       int
	}{
		{[]any{"ZADD", key, "5", "seeded"}, []any{"ZREM", key, "seeded"}, 1},
		{[]any{"ZREM", key, firstMember}, []any{"ZADD", key, score, firstMember}, 2},
		{[]any{"ZADD", key, "7.5", firstMember}, []any{"ZADD", key, score, firstMember}, 3},
	} {
		totals.differencesMade++
		r.runInDatabase(t, db, change.do...)
		// Each follow is seen from both sides.
		want := [6]int{2}
		want[change.at] = 2
		if got := i.run(1, "--compare-only"); got.Differences == want {
			totals.differencesFound++
		} else {
			t.Errorf("%v: differences %v, want %v\n%s", change.do, got.Differences, want, got.Text)
		}
		r.runInDatabase(t, db, change.undo...)
	}
	i.run(0, "--compare-only")
}

// runInDatabase runs a command in a database.
func (r *redisPeer) runInDatabase(t *testing.T, db string, args ...any) string {
	t.Helper()
	conn := r.Conn()
	defer conn.Close()
	n, err := strconv.Atoi(db)
	if err == nil {
		err = conn.Select(t.Context(), n).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := conn.Do(t.Context(), args...).Text()
	if err != nil && !strings.Contains(err.Error(), "unexpected type") {
		t.Fatal(err)
	}
	return got
}
