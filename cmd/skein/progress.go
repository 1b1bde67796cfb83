package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/skein-feed/skein/events"
	"github.com/skein-feed/skein/replay"
)

// logEvery is how often progress is told where there is no terminal to draw on.
const logEvery = 5 * time.Second

// progress shows how far long work is: a bar on a terminal, now and then a line elsewhere.
type progress struct {
	w    io.Writer
	what string
	bar  *progressbar.ProgressBar // nil: no terminal

	mu   sync.Mutex
	told time.Time
	rate forecast
	// troubled notes that trouble was told, so that it is told once.
	troubled bool
}

func newProgress(w io.Writer, what string) *progress {
	p := &progress{w: w, what: what, told: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(1,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what), progressbar.OptionFullWidth(),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(false),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// say tells something between two states of the bar.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("%s: %s", p.what, fmt.Sprintf(format, args...))
}

// note tells something that stands by itself between two states of the bar.
func (p *progress) note(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("%s", text)
}

// show shows how much is done, and the time left.
func (p *progress) show(done, total int64, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left, ok := p.rate.left(time.Now(), done, total); ok {
		text += ", about " + left.Round(time.Second).String() + " left"
	}
	if p.bar == nil {
		text = fmt.Sprintf("%s, %.0f %%", text, 100*float64(min(done, total))/float64(max(total, 1)))
	}
	p.drawLocked(done, total, text)
}

// draw shows how much is done.
func (p *progress) draw(done, total int64, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drawLocked(done, total, text)
}

func (p *progress) drawLocked(done, total int64, text string) {
	text = p.what + ": " + text
	switch {
	case p.bar != nil:
		p.bar.ChangeMax64(max(total, 1))
		p.bar.Describe(text)
		_ = p.bar.Set64(min(done, total)) // a bar that cannot be drawn stops nothing
	case time.Since(p.told) >= logEvery:
		p.told = time.Now()
		fmt.Fprintln(p.w, text)
	}
}

// retrying reports whether there is trouble, which is told once until it is over.
func (p *progress) retrying(trouble error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if trouble != nil && !p.troubled {
		p.line("%s: trying again: %v", p.what, trouble)
	}
	p.troubled = trouble != nil
	return p.troubled
}

// line tells something between two states of the bar.
func (p *progress) line(format string, args ...any) {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

// clear takes the bar away so that something else can be printed.
func (p *progress) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}

// end takes the bar away for good.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Exit()
		_ = p.bar.Clear()
	}
}

// showProgress shows how far work on bytes is until the returned function is called, which may be called again.
func showProgress(w io.Writer, what string, at *replay.Progress) (stop func()) {
	return showEvery(w, what, func(p *progress) {
		if unit, done, total := at.Now(); total > 0 {
			p.show(int64(done), int64(total), fmt.Sprintf("%s of %s %s", events.SizeText(done), events.SizeText(total), unit))
		}
	})
}

// showEvery shows again and again how far long work is until the returned function is called, which may be called again.
func showEvery(w io.Writer, what string, show func(p *progress)) (stop func()) {
	p := newProgress(w, what)
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-quit:
				p.end()
				return
			}
			show(p)
		}
	}()
	return sync.OnceFunc(func() {
		close(quit)
		<-ended
	})
}
