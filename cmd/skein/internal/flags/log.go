package flags

import (
	"io"
	"log/slog"
)

// LogFlags configure the log messages of a process.
type LogFlags struct {
	LogFormat string `help:"Format of log messages: ${enum}." enum:"text,json" default:"text"`
	LogLevel  string `help:"Write log messages of this level and above: ${enum}." enum:"debug,info,warn,error" default:"info"`
}

// Logger returns a logger that writes to w.
func (f *LogFlags) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(f.LogLevel)) // the parser has checked the level
	o := &slog.HandlerOptions{Level: level}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
