//go:build alerts

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

const alertFile = "../../docs/observability/alerts.yml"

// shortenedRules are replacements in the rules, so that alerts fire within seconds. They change
// only times, and each pattern must match.
var shortenedRules = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`for: \d+m`), "for: 1s"},
	{regexp.MustCompile(`\[(5m|15m|1h|3h)\]`), "[20s]"},
	{regexp.MustCompile(`> 7200`), "> 4"},                           // snapshots
	{regexp.MustCompile(`\) > 600`), ") > 4"},                       // the archive
	{regexp.MustCompile(`(lag_seconds > )60`), "${1}3"},             // a projection
	{regexp.MustCompile(`(full_in_seconds < )3 \* 86400`), "${1}0"}, // a test fills a log in seconds
}

// prometheusServer is a Prometheus that scrapes services each second and evaluates the rules.
type prometheusServer struct {
	t          *testing.T
	dir        string
	url        string
	alertNames []string

	mu      sync.Mutex
	targets map[string]scrapeTarget
	fired   map[string]bool
}

// scrapeTarget is a service to be scraped. An empty interval means each second, an empty scheme
// http.
type scrapeTarget struct{ addr, scheme, token, interval string }

// startPrometheus starts the program "prometheus", which must be in the path. task alerts builds
// it.
func startPrometheus(t *testing.T) *prometheusServer {
	t.Helper()
	rules, err := os.ReadFile(alertFile)
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheusServer{t: t, dir: t.TempDir(), targets: map[string]scrapeTarget{}, fired: map[string]bool{}}

	var parsed struct {
		Groups []struct {
			Rules []struct{ Alert string } `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(rules, &parsed); err != nil {
		t.Fatal(err)
	}

	for _, g := range parsed.Groups {
		for _, r := range g.Rules {
			p.alertNames = append(p.alertNames, r.Alert)
		}
	}
	for _, s := range shortenedRules {
		if !s.pattern.Match(rules) {
			t.Errorf("no rule has %v", s.pattern)
		}
		rules = s.pattern.ReplaceAll(rules, []byte(s.with))
	}

	p.writeFile("alerts.yml", rules)
	p.writeConfig()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	p.url = "http://" + addr

	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "prometheus", "--config.file", filepath.Join(p.dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(p.dir, "data"), "--web.listen-address", addr, "--web.enable-lifecycle",
		"--query.lookback-delta", "5s")

	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr, cmd.Stdout = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			t.Logf("prometheus says:\n%s", text)
		}
	})
	waitUntil(t.Context(), t, func(ctx context.Context) error {
		_, err := p.get(ctx, "/-/ready")
		return err
	})
	return p
}

func (p *prometheusServer) writeFile(name string, data []byte) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), data, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// writeConfig writes the configuration. The caller must hold p.mu, or be the only goroutine that
// knows p.
func (p *prometheusServer) writeConfig() {
	p.t.Helper()
	var jobs []map[string]any
	for _, name := range slices.Sorted(maps.Keys(p.targets)) {
		target := p.targets[name]
		job := map[string]any{
			"job_name": name, "scheme": target.scheme, "scrape_interval": target.interval, "scrape_timeout": target.interval, "tls_config": map[string]any{"insecure_skip_verify": true},
			"static_configs": []any{map[string]any{
				"targets": []string{target.addr}, "labels": map[string]string{"job": "skein", "instance": name},
			}},
		}
		if target.token != "" {
			job["authorization"] = map[string]string{"credentials": target.token}
		}
		jobs = append(jobs, job)
	}
	config, err := yaml.Marshal(map[string]any{
		"global":         map[string]string{"evaluation_interval": "1s"},
		"rule_files":     []string{"alerts.yml"},
		"scrape_configs": jobs,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.writeFile("prometheus.yml", config)
}

// startScraping lets Prometheus scrape a service until stop is called.
func (p *prometheusServer) startScraping(t *testing.T, name string, target scrapeTarget) (stop func()) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if target.scheme == "" {
		target.scheme = "http"
	}
	if target.interval == "" {
		target.interval = "1s"
	}
	p.targets[name] = target
	p.reload(t)
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.targets, name)
		p.reload(t)
	})
}

// reload lets Prometheus read its configuration again.
func (p *prometheusServer) reload(t *testing.T) {
	t.Helper()
	p.writeConfig()
	res, err := http.Post(p.url+"/-/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("reload: %s", res.Status)
	}
}

// get returns a page of Prometheus.
func (p *prometheusServer) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, res.Status, body)
	}
	return body, err
}

// firing returns the summaries of the alerts that fire for a service, or for no service in
// particular, by the names of the alerts.
func (p *prometheusServer) firing(ctx context.Context, name string) (map[string]string, error) {
	body, err := p.get(ctx, "/api/v1/alerts")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Alerts []struct {
				Labels, Annotations map[string]string
				State               string
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	firing := map[string]string{}
	for _, a := range answer.Data.Alerts {
		if instance, ok := a.Labels["instance"]; a.State == "firing" && (!ok || instance == name) {
			firing[a.Labels["alertname"]] = a.Annotations["summary"]
		}
	}
	return firing, nil
}

// waitForAlerts waits until each of these alerts has fired, and calls cause repeatedly meanwhile;
// cause may be nil.
func (p *prometheusServer) waitForAlerts(t *testing.T, name string, cause func(), alerts ...string) {
	t.Helper()
	began := time.Now()
	missing := slices.Clone(alerts)
	var firing map[string]string
	err := eventually(t.Context(), func(ctx context.Context) (err error) {
		if cause != nil {
			cause()
		}
		if firing, err = p.firing(ctx, name); err != nil {
			return err
		}
		missing = slices.DeleteFunc(missing, func(a string) bool {
			summary, fires := firing[a]
			if fires {
				t.Logf("%s after %v: %s", a, time.Since(began).Round(100*time.Millisecond), summary)
				p.mu.Lock()
				p.fired[a] = true
				p.mu.Unlock()
			}
			return fires
		})
		if len(missing) > 0 {
			return fmt.Errorf("%s do not fire", strings.Join(missing, ", "))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v; those that do: %v", err, slices.Sorted(maps.Keys(firing)))
	}
}

// query returns the value of an expression, or false if there is none.
func (p *prometheusServer) query(ctx context.Context, expr string) (value string, ok bool) {
	body, err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr))
	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err != nil || json.Unmarshal(body, &answer) != nil || len(answer.Data.Result) == 0 {
		return "", false
	}
	return fmt.Sprint(answer.Data.Result[0].Value[1]), true
}
