package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// largest is what a file of the repository may have at most: it stays in every clone for good.
const largest = 512 << 10

// TestNothingLargeIsTracked finds what go build leaves beside the sources, for one.
func TestNothingLargeIsTracked(t *testing.T) {
	for _, name := range strings.Split(run(t, root, nil, "git", "ls-files", "-z"), "\x00") {
		if info, err := os.Stat(filepath.Join(root, name)); err == nil && !info.IsDir() {
			assert.LessOrEqual(t, info.Size(), int64(largest), name)
		}
	}
}
