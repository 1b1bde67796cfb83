package flags

import (
	"io"
	"log/slog"
)

// LogFlags configure the log messages of a process.
type LogFlags struct {
	LogFormat string `help:"How the process writes its own log: ${enum}." enum:"text,json" default:"text"`
	LogLevel  string `help:"The least level of log messages: ${enum}." enum:"debug,info,warn,error" default:"info"`
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
