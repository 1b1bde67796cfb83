package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes the test binary be skein itself when a test runs skein: every test of the command line has real
// processes.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"skein": main})
}

// TestScripts runs the scenarios in testdata/script. Beside the usual commands of testscript they have:
//
//	ready FILE      waits for the port file of a service and until it is ready, and makes it $SKEIN_SERVER
//	holds DIR N     demands that the directory has so many entries
//	until TEXT ARG… runs skein again and again, until what it prints contains the text
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			return os.MkdirAll(env.Getenv("TMPDIR"), 0o700)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"ready": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 1 {
					ts.Fatalf("usage: ready FILE")
				}
				server, err := awaitReady(context.Background(), ts.MkAbs(args[0]))
				ts.Check(err)
				ts.Setenv("SKEIN_SERVER", server)
			},
			"until": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: until TEXT ARG…")
				}
				ts.Check(eventually(context.Background(), func(context.Context) error {
					err := ts.Exec("skein", args[1:]...)
					if out := ts.ReadFile("stdout"); err == nil && !strings.Contains(out, args[0]) {
						err = fmt.Errorf("it prints %s", out)
					}
					return err
				}))
			},
			"holds": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) != 2 {
					ts.Fatalf("usage: holds DIR N")
				}
				left, err := filepath.Glob(filepath.Join(ts.MkAbs(args[0]), "*"))
				ts.Check(err)
				if fmt.Sprint(len(left)) != args[1] {
					ts.Fatalf("%s holds %v", args[0], left)
				}
			},
		},
	})
}

// patience is how long a test waits for what must come. It comes in a fraction of that.
const patience = time.Minute

// eventually asks again and again, at first often, until the answer is nil.
func eventually(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("waited for %v: %w", patience, err)
		}
	}
}

// awaitReady waits until a service has written its port and is ready, and returns its address.
func awaitReady(ctx context.Context, portFile string) (server string, err error) {
	return server, eventually(ctx, func(ctx context.Context) error {
		port, err := os.ReadFile(portFile)
		if err != nil {
			return err
		}
		server = "http://127.0.0.1:" + strings.TrimSpace(string(port))
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/readyz", nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is not ready: %s", server, res.Status)
		}
		return nil
	})
}
