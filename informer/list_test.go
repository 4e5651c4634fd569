package informer

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/thermostat-go/thermostat/informer/internal/wire/wiretest"
)

// pages serves lists in pieces, one request after another, and writes down which continue tokens were asked for. A page
// whose bytes are held back ends when its request does.
type pages struct {
	mu     sync.Mutex
	asked  []string
	answer func(r *http.Request, token string) (*http.Response, error)
}

func (p *pages) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") != "" {
		return streaming(r, never{r.Context()}), nil
	}
	token := r.URL.Query().Get("continue")
	p.mu.Lock()
	p.asked = append(p.asked, token)
	p.mu.Unlock()
	return p.answer(r, token)
}

func (p *pages) tokens() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string{}, p.asked...)
}

func streaming(r *http.Request, body io.Reader) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Request: r, Header: http.Header{}, Body: io.NopCloser(body)}
}

func pageOf(token string, pods ...*corev1.Pod) []byte {
	list := podList("9", pods...)
	list.Continue = token
	return wiretest.ProtoList(list, nil)
}

// The next page is asked for as soon as it is known that there is one, and no page before the one in front of it is
// looked at. The objects come in order.
func TestTheNextPageIsOnItsWayMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := pageOf("2", podAt("a", "1"), podAt("b", "2"), podAt("c", "3"), podAt("d", "4"))
		out, in := io.Pipe()
		server := &pages{answer: func(r *http.Request, token string) (*http.Response, error) {
			switch token {
			case "":
				return streaming(r, out), nil
			case "2":
				second := pageOf("3", podAt("e", "5"), podAt("b", "6"))
				return streaming(r, io.MultiReader(bytes.NewReader(second[:len(second)-1]),
					pause{r.Context(), 2 * listTimeout}, bytes.NewReader(second[len(second)-1:]))), nil
			default:
				return streaming(r, bytes.NewReader(pageOf("", podAt("f", "7")))), nil
			}
		}}
		inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true, PageSize: 2})
		require.NoError(t, err)
		run(t, inf)
		for _, name := range []string{"b", "c", "d"} {
			// The answer of the second page waits for longer than a server may be silent, while the first page goes on.
			end := bytes.Index(first, []byte("uid-"+name))
			_, err = in.Write(first[:end])
			require.NoError(t, err)
			first = first[end:]
			time.Sleep(listTimeout * 2 / 3)
		}
		synctest.Wait()
		require.Equal(t, []string{"", "2"}, server.tokens())
		require.Equal(t, []string{"a", "b", "c"}, names(inf))
		_, err = in.Write(first)
		require.NoError(t, err)
		in.Close()
		synctest.Wait()
		require.Equal(t, []string{"", "2", "3"}, server.tokens())
		require.Equal(t, []string{"a", "b", "c", "d", "e", "f"}, names(inf))
		require.True(t, inf.HasSynced())
		b, _ := inf.Get(named("b"))
		require.Equal(t, "6", b.ResourceVersion, "the second page comes after the first")
	})
}

// A page that breaks off takes the request for the next one with it, whatever that does; the list begins anew.
func TestAPageThatBreaksOffTakesTheNextOneWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, hanging, ended := true, 0, 0
		server := &pages{}
		server.answer = func(r *http.Request, token string) (*http.Response, error) {
			switch first := pageOf("2", podAt("a", "3")); {
			case token == "" && broken:
				return streaming(r, io.MultiReader(bytes.NewReader(first[:len(first)-1]),
					pause{r.Context(), time.Second})), nil
			case token == "":
				return streaming(r, bytes.NewReader(first)), nil
			case broken:
				hanging++
				<-r.Context().Done()
				ended++
				broken = false
				return nil, r.Context().Err()
			default:
				return streaming(r, bytes.NewReader(pageOf("", podAt("b", "4")))), nil
			}
		}
		inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true, PageSize: 1})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, hanging)
		synced(t, inf)
		require.Equal(t, 1, ended)
		require.Equal(t, []string{"", "2", "", "2"}, server.tokens())
		require.Equal(t, []string{"a", "b"}, names(inf))
	})
}

// pause is a part of a stream in which nothing comes for a while.
type pause struct {
	ctx context.Context
	d   time.Duration
}

func (p pause) Read([]byte) (int, error) {
	select {
	case <-time.After(p.d):
		return 0, io.EOF
	case <-p.ctx.Done():
		return 0, p.ctx.Err()
	}
}

// A next page that is not answered within its time fails when its turn comes, and not before.
func TestANextPageThatIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &pages{answer: func(r *http.Request, token string) (*http.Response, error) {
			if token == "" {
				return streaming(r, bytes.NewReader(pageOf("2", podAt("a", "3")))), nil
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		}}
		inf, err := New[*corev1.Pod](podsOver(t, server), Options[*corev1.Pod]{DisableWatchList: true, PageSize: 1})
		require.NoError(t, err)
		run(t, inf)
		time.Sleep(listTimeout - time.Second)
		synctest.Wait()
		require.NoError(t, inf.Health().LastError)
		require.Equal(t, []string{"a"}, names(inf))
		time.Sleep(time.Second)
		synctest.Wait()
		require.ErrorIs(t, inf.Health().LastError, errSilent)
	})
}
