//go:build !client_go_0_35

package clientgo

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Objects of the scripts are pods, and numbers, which are no API objects: a key is the name of the one and the last
// digit of the other.
var errNoKey = errors.New("no key")

func keyOfAnything(obj any) (string, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return o.Name, nil
	case int:
		return strconv.Itoa(o % 10), nil
	}
	return "", errNoKey
}

func byParity(obj any) ([]string, error) {
	if n, ok := obj.(int); ok {
		return []string{[]string{"even", "odd"}[n%2], "number"}, nil
	}
	return nil, nil
}

func byLabel(obj any) ([]string, error) {
	var values []string
	if p, ok := obj.(*corev1.Pod); ok {
		for k, v := range p.Labels {
			values = append(values, k, k+"="+v)
		}
	}
	return values, nil
}

// playStores plays a script of operations, two bytes each, into client-go's indexer and ours, and compares every
// answer.
func playStores(t *testing.T, script []byte) {
	theirs, ours := cache.NewIndexer(keyOfAnything, cache.Indexers{"parity": byParity}),
		NewIndexer(keyOfAnything, cache.Indexers{"parity": byParity})
	object := func(op, n byte, version int) any {
		switch n % 4 {
		case 0:
			return int(n)
		case 1:
			if op&16 != 0 {
				return "nothing that has a key"
			}
		}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: strconv.Itoa(int(n / 16)), ResourceVersion: strconv.Itoa(version),
			Labels: map[string]string{strconv.Itoa(int(op & 3)): strconv.Itoa(int(n & 1))},
		}}
	}
	for i := 0; i+1 < len(script); i += 2 {
		op, n := script[i], script[i+1]
		o := object(op, n, i)
		var a, b error
		switch op % 8 {
		case 0, 1:
			a, b = theirs.Add(o), ours.Add(o)
		case 2:
			a, b = theirs.Update(o), ours.Update(o)
		case 3:
			a, b = theirs.Delete(o), ours.Delete(o)
		case 4:
			var list []any
			for j := range n % 8 {
				list = append(list, object(op, n+j*37, i))
			}
			a, b = theirs.Replace(slices.Clone(list), strconv.Itoa(i)), ours.Replace(list, strconv.Itoa(i))
		case 5:
			theirs.Bookmark(strconv.Itoa(i))
			ours.Bookmark(strconv.Itoa(i))
		case 6:
			name := "label"
			if n%4 == 0 {
				name = "parity" // conflicts
			}
			a, b = theirs.AddIndexers(cache.Indexers{name: byLabel}), ours.AddIndexers(cache.Indexers{name: byLabel})
		case 7:
			var txns []cache.Transaction
			for j := range n % 5 {
				kind := []cache.TransactionType{cache.TransactionTypeAdd, cache.TransactionTypeUpdate,
					cache.TransactionTypeDelete}[int(n+j)%3]
				txns = append(txns, cache.Transaction{Object: object(op, n+j*41, i), Type: kind})
			}
			x, y := theirs.(cache.TransactionStore).Transaction(txns...),
				ours.(cache.TransactionStore).Transaction(txns...)
			require.Equal(t, x == nil, y == nil)
			if x != nil {
				require.Equal(t, x.SuccessfulIndices, y.SuccessfulIndices)
				require.Equal(t, x.TotalTransactions, y.TotalTransactions)
				require.Len(t, y.Errors, len(x.Errors))
			}
		}
		require.Equal(t, a == nil, b == nil, "operation %d: %v, %v", op%8, a, b)
		requireSameStores(t, theirs, ours, o)
	}
}

func requireSameStores(t *testing.T, theirs, ours cache.Indexer, o any) {
	require.ElementsMatch(t, theirs.List(), ours.List())
	require.ElementsMatch(t, theirs.ListKeys(), ours.ListKeys())
	require.Equal(t, theirs.LastStoreSyncResourceVersion(), ours.LastStoreSyncResourceVersion())
	require.ElementsMatch(t, slices.Collect(maps.Keys(theirs.GetIndexers())),
		slices.Collect(maps.Keys(ours.GetIndexers())))
	for key := range 17 {
		a, ok, _ := theirs.GetByKey(strconv.Itoa(key))
		b, has, err := ours.GetByKey(strconv.Itoa(key))
		require.NoError(t, err)
		require.Equal(t, ok, has)
		require.Equal(t, a, b)
	}
	a, ok, err := theirs.Get(o)
	b, has, err2 := ours.Get(o)
	require.Equal(t, []any{a, ok, err == nil}, []any{b, has, err2 == nil})
	for _, index := range []string{"parity", "label", "none"} {
		values := theirs.ListIndexFuncValues(index)
		require.ElementsMatch(t, values, ours.ListIndexFuncValues(index))
		for _, value := range append(values, "nothing") {
			a, err := theirs.ByIndex(index, value)
			b, err2 := ours.ByIndex(index, value)
			require.Equal(t, err, err2)
			require.ElementsMatch(t, a, b)
			keys, err := theirs.IndexKeys(index, value)
			keys2, err2 := ours.IndexKeys(index, value)
			require.Equal(t, err, err2)
			require.ElementsMatch(t, keys, keys2)
			require.True(t, slices.IsSorted(keys2))
		}
		a, err := theirs.Index(index, o)
		b, err2 := ours.Index(index, o)
		require.Equal(t, err, err2)
		require.ElementsMatch(t, a, b)
	}
}

func TestStoresAgreeWithClientGo(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 5))
		script := make([]byte, 80)
		for i := range script {
			script[i] = byte(random.IntN(256))
		}
		t.Logf("seed %d", seed)
		playStores(t, script)
	}
}

func FuzzStores(f *testing.F) {
	f.Add([]byte{0, 3, 4, 7, 6, 1, 7, 4, 3, 3})
	f.Fuzz(func(t *testing.T, script []byte) { playStores(t, script[:min(len(script), 200)]) })
}

func TestAKeyErrorDoesNotShowTheObject(t *testing.T) {
	s := NewStore(cache.MetaNamespaceKeyFunc)
	for _, err := range []error{
		s.Add("the password"), s.Update("the password"), s.Delete("the password"),
		s.Replace([]any{"the password"}, "1"),
	} {
		require.NotContains(t, err.Error(), "password")
		require.ErrorContains(t, err, "string")
		var keyError cache.KeyError
		require.ErrorAs(t, err, &keyError)
		require.Equal(t, "the password", keyError.Obj)
		require.ErrorIs(t, err, keyError.Err)
	}
	_, _, err := s.Get("the password")
	require.Error(t, err)
	require.NoError(t, s.Resync())
}

func TestAStoreHoldsWhatTheTransformerMakes(t *testing.T) {
	failing := func(obj any) (any, error) {
		if obj.(int) == 13 {
			return nil, errPicky
		}
		return -obj.(int), nil
	}
	key := func(obj any) (string, error) { return fmt.Sprint(obj), nil }
	s := NewStore(key, WithTransformer(failing))
	require.NoError(t, s.Add(1))
	require.ErrorIs(t, s.Add(13), errPicky)
	require.ErrorIs(t, s.Replace([]any{1, 13}, ""), errPicky)
	item, ok, err := s.GetByKey("1")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, -1, item)
	require.NoError(t, s.Replace([]any{2}, "7"))
	require.Equal(t, []any{-2}, s.List())
}

var errPicky = errors.New("picky")

// client-go panics in all of these cases, with the store locked.
func TestAnIndexFunctionThatFailsIsAnErrorOfTheWrite(t *testing.T) {
	picky := cache.Indexers{"picky": func(obj any) ([]string, error) {
		switch obj.(*corev1.Pod).Name {
		case "bad":
			return nil, errPicky
		case "worse":
			panic(errPicky)
		}
		return []string{"good"}, nil
	}}
	pod := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	s := NewIndexer(cache.MetaNamespaceKeyFunc, picky)
	require.NoError(t, s.Add(pod("good")))
	require.ErrorIs(t, s.Add(pod("bad")), errPicky)
	require.ErrorIs(t, s.Update(pod("worse")), errPicky)
	found, err := s.ByIndex("picky", "good")
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Len(t, s.List(), 3, "what no index knows is there all the same")
	_, err = s.Index("picky", pod("bad"))
	require.ErrorIs(t, err, errPicky)
	require.ErrorIs(t, s.Replace([]any{pod("good"), pod("bad")}, "1"), errPicky)
	require.Len(t, s.List(), 2)
	failed := s.(cache.TransactionStore).Transaction(cache.Transaction{Type: cache.TransactionTypeAdd,
		Object: pod("bad")})
	require.Len(t, failed.Errors, 1)

	s = NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	require.NoError(t, s.Add(pod("bad")))
	require.ErrorIs(t, s.AddIndexers(picky), errPicky)
	require.Contains(t, s.GetIndexers(), "picky")
	require.NoError(t, s.Add(pod("good")))
	require.Equal(t, []string{"good"}, s.ListIndexFuncValues("picky"))
}
