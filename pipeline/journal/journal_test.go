package journal_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"sluice/internal/testkit"
	"sluice/pipeline"
	"sluice/pipeline/admission"
	"sluice/pipeline/journal"
	"sluice/pipeline/pipelinetest"
)

var at = pipeline.SalePartition{SaleID: "drop-1", Partition: 3}

// accepts makes n accepts that can be told apart.
func accepts(n int) []pipeline.Accept {
	all := make([]pipeline.Accept, n)
	for i := range all {
		all[i] = pipeline.Accept{
			Event: pipeline.Event{
				Partition: at.Partition, SaleID: at.SaleID, Sequence: int64(i + 1), OrderID: uuid.Must(uuid.NewV7()).String(),
				Number: rand.Int64N(1<<62) + 1, UserID: fmt.Sprintf("buyer-%d-ü", i), Quantity: 1 + i%7,
				AcceptedAt: time.UnixMilli(time.Now().UnixMilli()).UTC(), KeyHash: strings.Repeat("a", i%25),
			},
			PayloadHash: "p",
		}
		if i%3 == 0 {
			all[i].TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
		}
	}
	return all
}

const installation = "0190b5f0-0000-7000-8000-000000000000"

func open(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j := journal.Open(journal.Options{Dir: dir, Installation: installation, AppendTimeout: time.Minute})
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// read returns what a journal holds of a partition.
func read(t *testing.T, j *journal.Journal, p pipeline.Partition) []pipeline.Accept {
	t.Helper()
	var all []pipeline.Accept
	err := j.Each(t.Context(), []pipeline.Partition{p}, func(got pipeline.SalePartition, accepts []pipeline.Accept) error {
		for _, a := range accepts {
			if a.SaleID != got.SaleID || a.Partition != got.Partition {
				t.Errorf("accept %+v came with %+v", a, got)
			}
		}
		all = append(all, accepts...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func mustAppend(t *testing.T, j *journal.Journal, accepts []pipeline.Accept) {
	t.Helper()
	for chunk := range slices.Chunk(accepts, 100) {
		if !j.Append(at, chunk) {
			t.Fatal("the accepts are not on disk")
		}
	}
}

func TestWhatIsAppendedIsReadBack(t *testing.T) {
	j := open(t, t.TempDir())
	want := accepts(1000)
	mustAppend(t, j, want)
	if got := read(t, j, at.Partition); !slices.Equal(got, want) {
		t.Errorf("got %d accepts, want the %d that were appended", len(got), len(want))
	}
	if got := read(t, j, at.Partition+1); len(got) != 0 {
		t.Errorf("another partition: got %d accepts", len(got))
	}
}

// A process that is killed leaves everything that it appended to the next one, and nothing to one whose installation is
// another or that starts while it lives.
func TestTheNextProcessTakesOver(t *testing.T) {
	dir := t.TempDir()
	if out := runKilled(t, dir); !strings.HasPrefix(out, "appended 500") {
		t.Fatalf("got %q", out)
	}
	other := journal.Open(journal.Options{Dir: dir, Installation: uuid.NewString(), AppendTimeout: time.Minute})
	if !other.Empty() {
		t.Error("another installation took the journal")
	}
	_ = other.Close()
	j := open(t, dir)
	if got := read(t, j, at.Partition); len(got) != 500 {
		t.Errorf("got %d accepts of the process that was killed, want 500", len(got))
	}
	if beside := open(t, dir); !beside.Empty() {
		t.Error("two living processes have one journal")
	}
	mustAppend(t, j, accepts(10))
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if got := read(t, open(t, dir), at.Partition); len(got) != 510 {
		t.Errorf("the third process: got %d accepts, want 510", len(got))
	}
}

// runKilled runs a process that appends 500 accepts and is killed.
func runKilled(t *testing.T, dir string) string {
	t.Helper()
	victim := exec.Command(os.Args[0], "-test.run=^TestVictim$")
	victim.Env = append(os.Environ(), "JOURNAL_VICTIM="+dir)
	out, err := victim.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 64)
	n, _ := out.Read(said)
	_ = victim.Process.Kill()
	_ = victim.Wait()
	return string(said[:n])
}

// TestVictim is the process that is killed.
func TestVictim(t *testing.T) {
	dir := os.Getenv("JOURNAL_VICTIM")
	if dir == "" {
		t.Skip("a part of TestTheNextProcessTakesOver")
	}
	j := journal.Open(journal.Options{Dir: dir, Installation: installation, AppendTimeout: time.Minute})
	for chunk := range slices.Chunk(accepts(500), 100) {
		j.Append(at, chunk)
	}
	fmt.Println("appended 500")
	time.Sleep(time.Minute)
}

// Whatever is cut off or damaged, no accept is made up, and every record that is whole is read.
func TestTornAndCorruptFiles(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir)
	want := accepts(1000)
	mustAppend(t, j, want) // ten records
	path := j.Files()[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]pipeline.Accept{}
	for _, a := range want {
		known[a.OrderID] = a
	}
	readBack := func(data []byte) (accepts int, found journal.Contents, err error) {
		damaged := filepath.Join(t.TempDir(), "x.journal")
		if err := os.WriteFile(damaged, data, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err = journal.ReadFile(damaged, func(_ pipeline.SalePartition, got []pipeline.Accept) error {
			accepts += len(got)
			for _, a := range got {
				if known[a.OrderID] != a {
					t.Errorf("made up: %+v", a)
				}
			}
			return nil
		})
		return accepts, found, err
	}
	if n, found, err := readBack(whole); n != 1000 || found.Corrupt != 0 || err != nil {
		t.Fatalf("whole: got %d accepts, %+v, %v", n, found, err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		cut := random.IntN(len(whole))
		n, found, err := readBack(whole[:cut])
		if err != nil || n%100 != 0 || n > 1000*cut/len(whole)+100 || n < 1000*cut/len(whole)-200 {
			t.Fatalf("cut at %d of %d: got %d accepts, %+v, %v", cut, len(whole), n, found, err)
		}
		damaged := slices.Clone(whole)
		damaged[40+random.IntN(len(whole)-40)] ^= 1 << random.IntN(8)
		if n, found, err := readBack(damaged); err != nil || n != 900 || found.Corrupt == 0 {
			t.Fatalf("one bit: got %d accepts, %+v, %v, want the nine records beside it", n, found, err)
		}
		garbage := slices.Clone(whole)
		for i, from := 0, random.IntN(len(whole)-2000); i < 2000; i++ {
			garbage[from+i] = byte(random.Uint32())
		}
		if n, _, err := readBack(garbage); err != nil || n < 700 {
			t.Fatalf("2000 bytes of garbage: got %d accepts, %v", n, err)
		}
	}
	headless := slices.Clone(whole)
	clear(headless[:30])
	if n, found, err := readBack(headless); err != nil || n != 900 || found.Corrupt == 0 {
		t.Errorf("without its head: got %d accepts, %+v, %v, want the nine records behind it", n, found, err)
	}
	if _, err := journal.ReadFile("journal_test.go", nil); pipeline.KindOf(err) != pipeline.KindInvalid {
		t.Errorf("a file that is no journal: got %v", err)
	}
}

// One file that can't be read hides no other, and is kept for people when the rest is settled. The journal of a process
// that dies beside this one is taken over, too.
func TestAFileThatCanNotBeRead(t *testing.T) {
	dir := t.TempDir()
	r, first := journaled(t, dir)
	r.AdmitMany("first", 20)
	zeros := filepath.Join(filepath.Dir(first.Files()[0]), "0000000000000099.journal")
	j := open(t, dir)
	if !j.Empty() {
		t.Fatal("the journal of a living process was taken")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(zeros, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := j.TakeOver(); err != nil || !j.TookOver() {
		t.Fatalf("the journal of a process that died beside this one was not taken over: %v", err)
	}
	if got := read(t, j, r.Sale.Partitions[0]); len(got) != 20 {
		t.Errorf("got %d accepts, want 20", len(got))
	}
	r.WorkAll()
	j.EndSegment()
	if err := j.Trim(t.Context(), r.Store); err != nil || len(j.Files()) != 0 {
		t.Errorf("after a trim: got %q, %v, want nothing", j.Files(), err)
	}
	if _, err := os.Stat(zeros + ".corrupt"); err != nil {
		t.Errorf("the file that can't be read is gone: %v", err)
	}
}

// A directory that can't be written keeps nobody from an answer: the accepts are remembered in memory, and go to disk
// again when it can be.
func TestADiskThatFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // where the directory should be; root may write anywhere else
		t.Fatal(err)
	}
	j := open(t, dir)
	first := accepts(5)
	if j.Append(at, first) {
		t.Error("on a disk that fails: got on disk")
	}
	if got := read(t, j, at.Partition); !slices.Equal(got, first) {
		t.Errorf("got %d accepts, want those in memory", len(got))
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	time.Sleep(journal.RetryEvery + 10*time.Millisecond)
	second := accepts(5)
	if !j.Append(at, second) {
		t.Error("the disk works again: got not on disk")
	}
	if got := read(t, j, at.Partition); len(got) != 10 {
		t.Errorf("got %d accepts, want 10", len(got))
	}
}

// A disk that works again is said to do so without an order that tries it, and not before.
func TestADiskThatIsBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir)
	if j.Append(at, accepts(1)) || j.TakeOver() == nil || j.Works() == nil {
		t.Fatal("on a disk that fails: got no error")
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, "the journal to work", func() bool { return j.TakeOver() == nil && j.Works() == nil })
	if !j.Append(at, accepts(1)) {
		t.Error("the disk works again: got not on disk")
	}
}

// journaled is a rig whose admission has a journal on disk.
func journaled(t *testing.T, dir string) (*pipelinetest.Rig, *journal.Journal) {
	t.Helper()
	j := open(t, dir)
	r := pipelinetest.New(t, pipelinetest.Options{Admission: admission.Options{Journal: j}})
	if err := j.Announce(t.Context(), r.Store); err != nil {
		t.Fatal(err)
	}
	return r, j
}

// announced counts the journals that Postgres knows of.
func announced(r *pipelinetest.Rig) (n int) {
	r.Helper()
	if err := r.SQL.QueryRow(r.Ctx(), `select count(*) from accept_journals`).Scan(&n); err != nil {
		r.Fatal(err)
	}
	return n
}

// A segment is deleted once every order in it has a row or a letter, and not before. What an earlier process left is
// given up with its last segment.
func TestTrim(t *testing.T) {
	dir := t.TempDir()
	r, first := journaled(t, dir)
	r.AdmitMany("first", 20)
	if err := first.Leave(t.Context(), r.Store); err != nil || announced(r) != 1 {
		t.Fatalf("left with orders that are not stored: %v, %d announced", err, announced(r))
	}
	j := open(t, dir)
	own := r.NewAdmission(r.Redis, admission.Options{Journal: j})
	for i := range 20 {
		request := pipeline.OrderRequest{UserID: fmt.Sprintf("second-%d", i), Quantity: 1}
		if got, err := own.Admit(t.Context(), r.Sale, request); err != nil || !got.Receipt.Journaled {
			t.Fatalf("got %+v, %v, want an accept on disk", got, err)
		}
	}
	j.EndSegment()
	if err := j.Announce(t.Context(), r.Store); err != nil || announced(r) != 2 {
		t.Fatalf("%v, %d announced, want the own journal and the one taken over", err, announced(r))
	}
	trim := func(files int) {
		t.Helper()
		if err := j.Trim(t.Context(), r.Store); err != nil || len(j.Files()) != files {
			t.Fatalf("after a trim: got files %q, %v, want %d", j.Files(), err, files)
		}
	}
	trim(2)
	r.Persist(r.Events(r.Sale)[:39]...)
	trim(1)
	if announced(r) != 1 {
		t.Errorf("%d are announced, want the own journal alone", announced(r))
	}
	r.WorkAll()
	trim(0)
	if err := j.Leave(t.Context(), r.Store); err != nil || announced(r) != 0 {
		t.Errorf("left: %v, %d announced, want none", err, announced(r))
	}
	left, err := filepath.Glob(filepath.Join(dir, installation, "*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left %q, %v, want nothing on the disk", left, err)
	}
}

// Segments end at their size, and many writers at once lose nothing.
func TestManyWriters(t *testing.T) {
	j := open(t, t.TempDir())
	const writers, batches = 8, 90
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range batches {
				if !j.Append(at, accepts(128)) {
					t.Error("not on disk")
				}
			}
		})
	}
	wg.Wait()
	if got := read(t, j, at.Partition); len(got) != writers*batches*128 {
		t.Errorf("got %d accepts, want %d", len(got), writers*batches*128)
	}
	for _, path := range j.Files() {
		if info, err := os.Stat(path); err != nil || info.Size() > journal.SegmentBytes+1<<18 {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if len(j.Files()) < 2 {
		t.Error("there is one segment: the test needs more accepts")
	}
}

func BenchmarkAppend(b *testing.B) {
	j := journal.Open(journal.Options{Dir: b.TempDir(), Installation: installation, AppendTimeout: time.Minute})
	batch := accepts(128)
	b.ReportAllocs()
	for b.Loop() {
		j.Append(at, batch)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/128, "ns/accept")
}
