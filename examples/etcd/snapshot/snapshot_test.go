package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// member runs an etcd in this process, on ports of its own, and returns its URL for clients.
func member(t *testing.T, dir string) (client, peer string) {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = dir, "fatal"
	any := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = any, any
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	require.NoError(t, err)
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd does not start")
	}
	return "http://" + e.Clients[0].Addr().String(), "http://" + e.Peers[0].Addr().String()
}

func connect(t *testing.T, endpoint string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestFromAMemberToAnother saves a member's keys, and starts another one with them. All that was acknowledged is there.
func TestFromAMemberToAnother(t *testing.T) {
	endpoint, _ := member(t, filepath.Join(t.TempDir(), "one"))
	c := connect(t, endpoint)
	for i := range 100 {
		_, err := c.Put(t.Context(), fmt.Sprintf("key-%d", i%50), "value")
		require.NoError(t, err)
	}
	dir := t.TempDir()
	o := options{endpoints: []string{endpoint}, dir: dir, file: "a.db",
		message: filepath.Join(dir, "message"), timeout: time.Minute}
	require.NoError(t, o.run(t.Context(), []string{"save"}))
	said, err := os.ReadFile(o.message)
	require.NoError(t, err)
	r, err := verify(o.path())
	require.NoError(t, err)
	require.EqualValues(t, 101, r.Revision)
	require.Equal(t, 50, r.Keys)
	require.Equal(t, "3.7.3", r.Version)

	_, err = c.Put(t.Context(), "later", "value")
	require.NoError(t, err)
	require.NoError(t, o.run(t.Context(), []string{"save"}), "a file that is there is not made anew")
	again, err := os.ReadFile(o.message)
	require.NoError(t, err)
	require.Equal(t, string(said), string(again))

	data := filepath.Join(t.TempDir(), "data")
	o.name, o.peerURL, o.token, o.dataDir = "default", "http://localhost:2380", "other", data
	o.hash = r.SHA256[:60] + "0000"
	require.ErrorContains(t, restore(o), "another file")
	o.hash = r.SHA256
	require.NoError(t, restore(o))
	require.NoError(t, restore(o), "a second time nothing is done")
	endpoint, _ = member(t, data)
	got, err := connect(t, endpoint).Get(t.Context(), "", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, got.Kvs, 50)
	require.EqualValues(t, 101, got.Header.Revision)

	require.NoError(t, o.run(t.Context(), []string{"remove"}))
	require.NoError(t, o.run(t.Context(), []string{"remove"}))
	_, err = os.Stat(o.path())
	require.ErrorIs(t, err, os.ErrNotExist)
}

// TestADamagedFile is noticed: one bit, and a file that is cut off.
func TestADamagedFile(t *testing.T) {
	endpoint, _ := member(t, filepath.Join(t.TempDir(), "one"))
	o := options{endpoints: []string{endpoint}, dir: t.TempDir(), file: "a.db"}
	_, err := save(t.Context(), o)
	require.NoError(t, err)
	whole, err := os.ReadFile(o.path())
	require.NoError(t, err)
	damaged := append([]byte(nil), whole...)
	damaged[len(damaged)/2] ^= 1
	require.NoError(t, os.WriteFile(o.path(), damaged, 0o600))
	_, err = verify(o.path())
	require.ErrorContains(t, err, "is damaged")
	o.dataDir = filepath.Join(t.TempDir(), "data")
	require.ErrorContains(t, restore(o), "is damaged")
	require.NoError(t, os.WriteFile(o.path(), whole[:len(whole)-100], 0o600))
	_, err = verify(o.path())
	require.ErrorContains(t, err, "is cut off")
}

func TestFlags(t *testing.T) {
	for want, o := range map[string]options{
		"needs the flag --file":      {dir: "a"},
		"needs the flag --endpoints": {dir: "a", file: "b"},
		"without a folder":           {dir: "a", file: "../b", endpoints: []string{"c"}},
	} {
		require.ErrorContains(t, o.run(t.Context(), []string{"save"}), want)
	}
	require.ErrorContains(t, options{}.run(t.Context(), nil), "give one command")
	require.ErrorContains(t, options{}.run(t.Context(), []string{"x"}), "unknown command")
}
