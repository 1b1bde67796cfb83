package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/skein-feed/skein/cmd/skein/internal/command"
	"github.com/skein-feed/skein/events/leaktest"
	"github.com/skein-feed/skein/events/testmain"
	"github.com/skein-feed/skein/gateway/access/accesstest"
)

// TestMain lets the test binary act as skein when a test runs `skein`, so all tests of the command
// line run real processes.
func TestMain(m *testing.M) {
	// A service inside a test starts its worker from this binary. The worker must not run the
	// tests.
	if len(os.Args) > 1 && os.Args[1] == "finish-build" {
		main()
		return
	}

	// Most tests wait for processes more than they compute. With more tests at once, they would
	// wait for each other.
	_ = flag.Set("test.parallel", "6")

	// Under the race detector, each process sleeps for a second before it exits unless this
	// variable is set. The tests start hundreds of processes.
	if os.Getenv(raceOptionsVar) == "" {
		_ = os.Setenv(raceOptionsVar, "atexit_sleep_ms=0")
	}

	// Otherwise garbage collection takes much of the time of the processes that tests start.
	if err := os.Setenv(gcPercentVar, "400"); err != nil {
		panic(err)
	}

	// A service refuses calls while the machine is too busy to begin them in time. The tests must
	// also pass on such a machine.
	if err := os.Setenv("SKEIN_SHED_AFTER", "0s"); err != nil {
		panic(err)
	}
	testscript.Main(leakCheckedTests{m}, map[string]func(){"skein": runSkein})
}

// exitOnStdinEOF names the environment variable with which a test asks runSkein to end the process
// as soon as its standard input is closed.
const exitOnStdinEOF = "SKEIN_TEST_ENDS_WITH_STDIN"

// runSkein is the main function of the processes that tests start. A process that outlives a killed
// test binary would keep its ports, and would reach the servers of the next test run. So the
// process ends when the pipe that the test binary holds open is closed.
func runSkein() {
	if os.Getenv(exitOnStdinEOF) != "" {
		// A worker process must not inherit the variable: it reads its operation from standard
		// input.
		_ = os.Unsetenv(exitOnStdinEOF)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(exitFailed)
		}()
	}
	main()
}

// leakCheckedTests runs the tests, and fails if one of them leaves a goroutine behind.
type leakCheckedTests struct{ tests *testing.M }

func (l leakCheckedTests) Run() int {
	testmain.Prepare()
	code := l.tests.Run()
	if code != 0 {
		return code
	}

	// Idle connections of the default client have goroutines, which are no leak.
	http.DefaultClient.CloseIdleConnections()
	if err := leaktest.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines left behind:", err)
		return 1
	}
	return 0
}

// testSeed returns the seed for everything that a test chooses at random. If RAPID_SEED is set,
// that is the seed, so that the merge gate runs the same test every time. Otherwise the seed is
// new.
func testSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("RAPID_SEED"); text != "" {
		fixedSeed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("RAPID_SEED: %v", err)
		}
		seed = fixedSeed
	}
	t.Logf("RAPID_SEED=%d", seed)
	return seed
}

// raceOptionsVar names the environment variable with the options of the race detector.
const raceOptionsVar = "GORACE"

// gcPercentVar names the environment variable that tells processes how much garbage to collect.
const gcPercentVar = "GOGC"

// TestScripts runs the scenarios in testdata/script. Besides the usual commands of testscript, the
// scenarios have these:
//
//	ready FILE [CA [CERT KEY]]
//		waits until the service with this port file is ready, and sets $SKEIN_SERVER to its
//		address. With the file of a certificate authority, and perhaps a certificate and its
//		key, it uses TLS
//	held FILE
//		like ready, for a service that reports that it is held in front of a hole in its log
//	certificates
//		writes ca.pem, and certificates and keys to server/ and client/ (for the name "web")
//	jwt FILE CLAIMS
//		writes a JWT with the claims, which are JSON, and writes the key for it to jwks.json
//	flip DIR TEXT N
//		flips a bit in the Nth occurrence of the text in a file of messages below the directory
//	unflip
//		restores the file that flip has changed
//	holds DIR N
//		fails unless the directory has N entries
//	private FILE…
//		fails unless only the user has access to the files, the directories, and everything in
//		these; with !, fails unless others have access to each
//	until TEXT ARG…
//		runs skein repeatedly until its output contains the text; with !, until it fails with
//		that text
func TestScripts(t *testing.T) {
	t.Parallel()
	jwts := accesstest.NewJWTs(t, "one")
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv(raceOptionsVar, os.Getenv(raceOptionsVar))
			env.Setenv(gcPercentVar, os.Getenv(gcPercentVar))
			return os.MkdirAll(env.Getenv("TMPDIR"), 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"ready":   runReady,
			"held":    runHeld,
			"flip":    runFlip,
			"unflip":  runUnflip,
			"holds":   runHolds,
			"private": runPrivate,
			"until":   runUntil,
			"certificates": func(ts *testscript.TestScript, _ bool, _ []string) {
				ca := accesstest.NewAuthority(t)
				for _, dir := range []string{"server", "client"} {
					ts.Check(os.Mkdir(ts.MkAbs(dir), 0o700))
				}
				ca.Server(ts.MkAbs("server"))
				ca.Client(ts.MkAbs("client"), "web")
				ts.Check(os.Rename(ca.File, ts.MkAbs("ca.pem")))
			},
			"jwt": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 2 {
					ts.Fatalf("usage: jwt FILE CLAIMS")
				}
				claims := map[string]any{}
				ts.Check(json.Unmarshal([]byte(args[1]), &claims))
				ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(jwts.Token(claims)), 0o600))
				accesstest.WriteKeys(t, ts.MkAbs("jwks.json"), jwts)
			},
		},
	})
}

// runReady is the command ready of scripts.
func runReady(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) == 3 || len(args) > 4 {
		ts.Fatalf("usage: ready FILE [CA [CERT KEY]]")
	}
	scheme := "http://"
	client := http.DefaultClient
	if len(args) > 1 {
		scheme = "https://"
		client = newTLSClient(ts, args[1:])
		defer client.CloseIdleConnections()
	}
	server, err := waitUntilReadyOver(context.Background(), ts.MkAbs(args[0]), scheme, client)
	ts.Check(err)
	ts.Setenv("SKEIN_SERVER", server)
}

// runHeld is the command held of scripts.
func runHeld(ts *testscript.TestScript, _ bool, args []string) {
	server, err := waitForReadyz(context.Background(), ts.MkAbs(args[0]), "http://", http.DefaultClient, http.StatusServiceUnavailable, allStoresHeld)
	ts.Check(err)
	ts.Setenv("SKEIN_SERVER", server)
}

// intactCopy is the file of a script in which flip saves the file that it changes, for unflip.
const intactCopy = "whole"

// runFlip is the command flip of scripts.
func runFlip(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	ts.Check(flipBit(ts.MkAbs(args[0]), args[1], n, ts.MkAbs(intactCopy)))
}

// runUnflip is the command unflip of scripts.
func runUnflip(ts *testscript.TestScript, _ bool, _ []string) {
	ts.Check(restoreFlipped(ts.MkAbs(intactCopy)))
}

// runHolds is the command holds of scripts.
func runHolds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: holds DIR N")
	}
	entries, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*"))
	ts.Check(err)
	if fmt.Sprint(len(entries)) != args[1] {
		ts.Fatalf("%s has %d entries, want %s: %v", args[0], len(entries), args[1], entries)
	}
}

// runPrivate is the command private of scripts.
func runPrivate(ts *testscript.TestScript, neg bool, args []string) {
	for _, arg := range args {
		// Find a file to which others have access.
		accessible := ""
		ts.Check(filepath.WalkDir(ts.MkAbs(arg), func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				accessible = fmt.Sprintf("%s: %v", path, info.Mode())
			}
			return err
		}))

		if accessible != "" && !neg {
			ts.Fatalf("others have access to %s, want %s to be private", accessible, arg)
		}
		if accessible == "" && neg {
			ts.Fatalf("%s is private, want others to have access", arg)
		}
	}
}

// runUntil is the command until of scripts.
func runUntil(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: until TEXT ARG…")
	}
	text := args[0]
	ts.Check(eventually(context.Background(), func(context.Context) error {
		err := ts.Exec("skein", args[1:]...)
		if !neg {
			if err != nil {
				return err
			}
			if out := ts.ReadFile("stdout"); !strings.Contains(out, text) {
				return fmt.Errorf("skein prints %s, want %q", out, text)
			}
			return nil
		}

		if err == nil {
			return errors.New("skein succeeds, want it to fail")
		}
		if errOut := ts.ReadFile("stderr"); !strings.Contains(errOut, text) {
			return fmt.Errorf("skein fails with %s, want %q", errOut, text)
		}
		return nil
	}))
}

// waitLimit is how long a test waits for something that must happen. On an idle machine it happens
// in a fraction of that.
const waitLimit = 5 * time.Minute

// eventually calls ask until it returns nil, first after pauses of a millisecond, later of 50
// milliseconds. It returns the last error when waitLimit is over or the context ends.
func eventually(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, waitLimit)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("waited for %v: %w", waitLimit, err)
		}
	}
}

// waitUntil calls check as [eventually] does, and fails the test if check does not return nil in
// time.
func waitUntil(ctx context.Context, t *testing.T, check func(context.Context) error) {
	t.Helper()
	if err := eventually(ctx, check); err != nil {
		t.Fatal(err)
	}
}

// httpGet returns the status and the whole body of a page.
func httpGet(ctx context.Context, client *http.Client, url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// waitUntilReady waits until a service has written its port file and is ready, and returns its
// address.
func waitUntilReady(ctx context.Context, portFile string) (server string, err error) {
	return waitUntilReadyOver(ctx, portFile, "http://", http.DefaultClient)
}

// newTLSClient returns a client that trusts the certificate authority of the first file. Two more
// files are its own certificate and key.
func newTLSClient(ts *testscript.TestScript, files []string) *http.Client {
	tlsFlags := command.ClientFlags{TLSCA: ts.MkAbs(files[0])}
	if len(files) > 1 {
		tlsFlags.ClientCert = ts.MkAbs(files[1])
		tlsFlags.ClientKey = ts.MkAbs(files[2])
	}
	config, err := tlsFlags.ReadTLS()
	ts.Check(err)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
}

// waitUntilReadyOver does the same as [waitUntilReady] with a client for the scheme http:// or
// https://.
func waitUntilReadyOver(ctx context.Context, portFile, scheme string, client *http.Client) (server string, err error) {
	return waitForReadyz(ctx, portFile, scheme, client, http.StatusOK, func(string) bool { return true })
}

// allStoresHeld reports whether an answer of /readyz says of every store that it is held in front
// of a hole.
func allStoresHeld(answer string) bool {
	const state = `"state":`
	return strings.Contains(answer, state) && strings.Count(answer, state) == strings.Count(answer, state+`"held"`)
}

// waitForReadyz waits until a service has written its port file, and /readyz answers with the
// status and with a body that accepts approves. It returns the address of the service.
func waitForReadyz(
	ctx context.Context, portFile, scheme string, client *http.Client, status int, accepts func(answer string) bool,
) (server string, err error) {
	return server, eventually(ctx, func(ctx context.Context) error {
		port, err := os.ReadFile(portFile)
		if err != nil {
			return err
		}
		server = scheme + "127.0.0.1:" + strings.TrimSpace(string(port))
		got, answer, err := httpGet(ctx, client, server+"/readyz")
		if err != nil {
			return err
		}
		if got != status {
			return fmt.Errorf("/readyz of %s: got status %d, want %d: %s", server, got, status, answer)
		}
		if !accepts(answer) {
			return fmt.Errorf("/readyz of %s answers status %d with another body than expected: %s", server, got, answer)
		}
		return nil
	})
}
