package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSinceACommit changes one line and adds one, in a package below the repository's root.
func TestSinceACommit(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "pair")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, "pair.go"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b.c"}, args...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	write("package pair\n\nfunc A(x int) bool {\n\tif x > 1 {\n\t\treturn true\n\t}\n\treturn x < 0\n}\n")
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	write("package pair\n\nfunc A(x int) bool {\n\tif x > 1 {\n\t\treturn x == 3\n\t}\n\tx++\n\treturn x < 0\n}\n")

	_, all, err := findAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := changedSince(t.Context(), dir, "HEAD", all)
	if err != nil {
		t.Fatal(err)
	}
	places := map[string]bool{}
	for _, m := range kept {
		places[m.place()] = true
	}
	if len(places) != 2 || !places["pair.go:5"] || !places["pair.go:7"] {
		t.Errorf("kept %v of %d, want those of pair.go:5 and pair.go:7", places, len(all))
	}
	_, err = changedSince(t.Context(), dir, "nowhere", all)
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("an unknown commit: %v", err)
	}
}
