package processnode

import (
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mounts are the mount paths of a container with the folders or files on this machine, the longest path first.
type mounts []mounted

type mounted struct{ path, on string }

// mounts returns those of a container. The volumes have been made.
func (w *podWorker) mounts(spec corev1.Container) (all mounts) {
	for _, m := range spec.VolumeMounts {
		all = append(all, mounted{path.Clean(m.MountPath),
			filepath.Join(w.volumeDir(m.Name), filepath.FromSlash(m.SubPath))})
	}
	slices.SortFunc(all, func(a, b mounted) int { return len(b.path) - len(a.path) })
	return all
}

// replace returns s with each mount path in it replaced. A path begins s, or follows "://" or a character that cannot
// be part of a path; and it ends with s, or before a "/" or such a character.
func (m mounts) replace(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		n, on := m.at(s, i)
		if n == 0 {
			b.WriteByte(s[i])
			i++
			continue
		}
		b.WriteString(on)
		i += n
	}
	return b.String()
}

// at returns the length of the mount path that begins at s[i], and what it stands for.
func (m mounts) at(s string, i int) (n int, on string) {
	if s[i] != '/' || i > 0 && isPath(s[i-1]) && !strings.HasSuffix(s[:i], "://") {
		return 0, ""
	}
	for _, mount := range m {
		rest, ok := strings.CutPrefix(s[i:], mount.path)
		if ok && (rest == "" || rest[0] == '/' || !isPath(rest[0])) {
			return len(mount.path), mount.on
		}
	}
	return 0, ""
}

func isPath(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("/._-", c) >= 0 ||
		c >= 0x80
}
