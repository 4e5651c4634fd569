package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// A suite is the tests of one package, in one binary that holds the mutants: those of the package that is changed, or
// of another one that uses it.
type suite struct {
	dir    string
	prefix string // stands before the names of tests in what is printed, if the package is another one
	binary string
}

// compileAll builds the binaries of all suites, each with all mutants of the package in it, and keeps those that
// compile. What is written goes to work.
func (p *pkg) compileAll(ctx context.Context, files []*source, mutants []*mutant) error {
	name, err := packageName(ctx, p.dir)
	if err != nil {
		return err
	}
	replace := map[string]string{} // what the overlay puts in the place of which file
	add := func(path, text string) error {
		replace[path] = filepath.Join(p.work, filepath.Base(path))
		return os.WriteFile(replace[path], []byte(text), 0o600)
	}
	if err := add(filepath.Join(p.dir, "active_mutant.go"), fmt.Sprintf(runtime, name, len(mutants)+1)); err != nil {
		return err
	}
	for p.mutants = mutants; ; {
		cloth := map[string]woven{}
		for _, file := range files {
			w := weave(file, slices.DeleteFunc(slices.Clone(p.mutants), func(m *mutant) bool { return m.file != file }))
			cloth[filepath.Base(file.path)] = w
			if err := add(file.path, w.text); err != nil {
				return err
			}
		}
		output, err := p.compile(ctx, p.suites[0], replace)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			break
		}
		bad := blame(output, cloth)
		if len(bad) == 0 {
			return fmt.Errorf("%s does not compile: %w\n%s", p.dir, err, output)
		}
		p.mutants = slices.DeleteFunc(slices.Clone(p.mutants), func(m *mutant) bool { return bad[m] })
	}
	for _, s := range p.suites[1:] {
		if output, err := p.compile(ctx, s, replace); err != nil {
			return fmt.Errorf("the tests of %s do not compile: %w\n%s", s.dir, err, output)
		}
	}
	return nil
}

// compile builds the test binary of a suite. With -e the compiler names all errors of the suite's package instead of
// the first ten.
func (p *pkg) compile(ctx context.Context, s *suite, replace map[string]string) (output []byte, err error) {
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(p.work, "overlay.json")
	if err := os.WriteFile(path, overlay, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", s.binary,
		"-overlay", path, "-vet=off", "-gcflags=-e", ".")
	cmd.Dir = s.dir
	return cmd.CombinedOutput()
}

var compilerError = regexp.MustCompile(`(?m)^([^\s:]+\.go):(\d+):(?:(\d+):)? `)

// blame finds the mutants that the compiler complains about.
func blame(output []byte, cloth map[string]woven) map[*mutant]bool {
	bad := map[*mutant]bool{}
	for _, match := range compilerError.FindAllSubmatch(output, -1) {
		line, _ := strconv.Atoi(string(match[2]))
		column, _ := strconv.Atoi(string(match[3])) // some errors come without one
		if w, ok := cloth[filepath.Base(string(match[1]))]; ok {
			for _, m := range w.blamed(line, column) {
				bad[m] = true
			}
		}
	}
	return bad
}

func packageName(ctx context.Context, dir string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-f", "{{.Name}}", ".")
	cmd.Dir = dir
	out, err := cmd.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return "", fmt.Errorf("%w: %s", err, exit.Stderr)
	}
	return string(bytes.TrimSpace(out)), err
}
