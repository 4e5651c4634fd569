package processnode

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	for in, want := range map[string]string{
		"$(A)":          "1",
		"x$(A)$(A)y":    "x11y",
		"$(B)":          "$(A)",
		"$(C)":          "$(C)",
		"$$(A)":         "$(A)",
		"$$$(A)":        "$1",
		"$A ${A} $":     "$A ${A} $",
		"[$(EMPTY)]":    "[]",
		"$(A":           "$(A",
		"100$$ $(A)00$": "100$ 100$",
	} {
		require.Equal(t, want, expand(in, vars), in)
	}
}

func TestMountPathsAreReplaced(t *testing.T) {
	m := mounts{{"/var/lib/etcd/wal", "/w"}, {"/var/lib/etcd", "/d"}, {"/tmp", "/tmp/x/tmp"}}
	for in, want := range map[string]string{
		"/var/lib/etcd":                       "/d",
		"/var/lib/etcd/":                      "/d/",
		"/var/lib/etcd/wal/0":                 "/w/0",
		"--data-dir=/var/lib/etcd/a":          "--data-dir=/d/a",
		"/var/lib/etcd:/var/lib/etcd/wal":     "/d:/w",
		"cp /var/lib/etcd/a '/tmp/b'":         "cp /d/a '/tmp/x/tmp/b'",
		"unix:///var/lib/etcd/s":              "unix:///d/s",
		"https://example.com/var/lib/etcd":    "https://example.com/var/lib/etcd",
		"/srv/var/lib/etcd":                   "/srv/var/lib/etcd",
		"/var/lib/etcd2 /var/lib/etcd-a":      "/var/lib/etcd2 /var/lib/etcd-a",
		"/var/lib /var/lib/etc":               "/var/lib /var/lib/etc",
		"/tmp":                                "/tmp/x/tmp",
		"":                                    "",
		"ä/tmp":                               "ä/tmp",
		"{\"dir\":\"/tmp\",\"b\":[\"/tmp\"]}": "{\"dir\":\"/tmp/x/tmp\",\"b\":[\"/tmp/x/tmp\"]}",
	} {
		require.Equal(t, want, m.replace(in), in)
	}
}

func TestAnywhere(t *testing.T) {
	for in, want := range map[string]string{
		"0.0.0.0":                               "IP",
		"--listen=http://0.0.0.0:80":            "--listen=http://IP:80",
		"http://0.0.0.0:80,https://0.0.0.0:443": "http://IP:80,https://IP:443",
		"0.0.0.0/0":                             "0.0.0.0/0",
		"10.0.0.0 0.0.0.01":                     "10.0.0.0 0.0.0.01",
	} {
		require.Equal(t, want, anywhere.ReplaceAllString(in, "IP$1"), in)
	}
}

func TestExitOf(t *testing.T) {
	for status, want := range map[string][2]int32{
		"exit status 0":      {0, 0},
		"exit status 12":     {12, 0},
		"signal: killed":     {137, 9},
		"signal: terminated": {143, 15},
		"signal: segmentation fault (core dumped)": {139, 11},
		"something else": {255, 0},
	} {
		code, signal := exitOf(status)
		require.Equal(t, want, [2]int32{code, signal}, status)
	}
}
