//go:build alerts

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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

	// Remember the names of all alerts, so that a test can say which of them never fired.
	var parsed struct {
		Groups []struct {
			Rules []struct{ Alert string } `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(rules, &parsed); err != nil {
		t.Fatal(err)
	}
	for _, group := range parsed.Groups {
		for _, rule := range group.Rules {
			p.alertNames = append(p.alertNames, rule.Alert)
		}
	}

	for _, shortened := range shortenedRules {
		if !shortened.pattern.Match(rules) {
			t.Errorf("rules in %s: got none that match %v, want at least one", alertFile, shortened.pattern)
		}
		rules = shortened.pattern.ReplaceAll(rules, []byte(shortened.with))
	}
	p.writeFile("alerts.yml", rules)
	p.writeConfig()

	// Prometheus does not say which port it took, so choose a free one for it.
	ports, err := findFreePorts(23000, 1)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", ports[0])
	p.url = "http://" + addr

	// The test's context ends before its cleanups run. Stopping a service reloads the configuration
	// of Prometheus, so Prometheus must outlive that context.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "prometheus", "--config.file", filepath.Join(p.dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(p.dir, "data"), "--web.listen-address", addr, "--web.enable-lifecycle",
		"--query.lookback-delta", "5s")

	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout = log
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			t.Logf("the log of Prometheus:\n%s", text)
		}
	})

	waitUntil(t.Context(), t, func(ctx context.Context) error {
		_, err := p.get(ctx, "/-/ready")
		return err
	})
	return p
}

// writeFile writes a file into the directory of Prometheus.
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
			"job_name": name, "scheme": target.scheme, "scrape_interval": target.interval, "scrape_timeout": target.interval,
			"tls_config": map[string]any{"insecure_skip_verify": true},
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

// targetName returns the name by which Prometheus knows the service of a test.
func targetName(t *testing.T) string {
	return strings.ReplaceAll(t.Name(), "/", "-")
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
		t.Fatalf("reload of the configuration: got %s, want status 200", res.Status)
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
	for _, alert := range answer.Data.Alerts {
		instance, hasInstance := alert.Labels["instance"]
		if alert.State == "firing" && (!hasInstance || instance == name) {
			firing[alert.Labels["alertname"]] = alert.Annotations["summary"]
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
	err := eventually(t.Context(), func(ctx context.Context) error {
		if cause != nil {
			cause()
		}
		var err error
		firing, err = p.firing(ctx, name)
		if err != nil {
			return err
		}

		// The alerts need not fire at the same time: one that has fired is no longer waited for.
		missing = slices.DeleteFunc(missing, func(alert string) bool {
			summary, fires := firing[alert]
			if fires {
				t.Logf("%s after %v: %s", alert, time.Since(began).Round(100*time.Millisecond), summary)
				p.mu.Lock()
				p.fired[alert] = true
				p.mu.Unlock()
			}
			return fires
		})
		if len(missing) > 0 {
			return fmt.Errorf("%s have not fired", strings.Join(missing, ", "))
		}
		return nil
	})
	if err != nil {
		t.Fatalf("firing alerts: got %v, want %v: %v", slices.Sorted(maps.Keys(firing)), alerts, err)
	}
}

// query returns the value of an expression, or false if there is none, also because Prometheus does
// not answer.
func (p *prometheusServer) query(ctx context.Context, expr string) (value string, ok bool) {
	body, err := p.get(ctx, "/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return "", false
	}

	var answer struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || len(answer.Data.Result) == 0 {
		return "", false
	}

	// A value is the pair of a time and a text.
	return fmt.Sprint(answer.Data.Result[0].Value[1]), true
}
