package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
)

// changedSince keeps the mutants on lines of the work tree that are not in a commit.
func changedSince(ctx context.Context, dir, commit string, all []*mutant) ([]*mutant, error) {
	cmd := exec.CommandContext(ctx, "git", "diff", "--unified=0", "--no-ext-diff", "--no-color", "--relative", commit,
		"--", ".")
	cmd.Dir = dir
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	diff, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git diff %s: %w: %s", commit, err, complaint.Bytes())
	}
	changed := changedLines(diff)
	var kept []*mutant
	for _, m := range all {
		if changed[line{filepath.Base(m.file.path), m.file.lineOf(m.start)}] {
			kept = append(kept, m)
		}
	}
	return kept, nil
}

type line struct {
	file   string
	number int
}

var (
	diffFile = regexp.MustCompile(`^\+\+\+ b/(.+)$`)
	diffHunk = regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)
)

// changedLines lists the lines that a diff without context adds.
func changedLines(diff []byte) map[line]bool {
	changed, file := map[line]bool{}, ""
	for text := range bytes.Lines(diff) {
		text = bytes.TrimRight(text, "\n")
		if m := diffFile.FindSubmatch(text); m != nil {
			file = string(m[1])
		} else if m := diffHunk.FindSubmatch(text); m != nil {
			first, _ := strconv.Atoi(string(m[1]))
			count := 1
			if len(m[2]) > 0 {
				count, _ = strconv.Atoi(string(m[2]))
			}
			for i := range count {
				changed[line{file, first + i}] = true
			}
		}
	}
	return changed
}
