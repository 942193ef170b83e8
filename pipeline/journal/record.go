package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"sluice/pipeline"

	"github.com/google/uuid"
)

// A record is one batch of accepts of one sale on one partition: magic, length and CRC-32C of the payload, each of four
// bytes in little-endian order, then the payload. The magic lets a reader find the next record behind a corrupt one.
const (
	recordMagic  = 0x314a4c53 // "SLJ1"
	recordHeader = 12
	// maxRecord bounds a payload, so that a corrupt length is not believed. 128 accepts of the longest user ids and
	// hashes take a fifth of it.
	maxRecord = 1 << 18
)

// maxText bounds a text within a record: the longest is a user id.
const maxText = 1 << 10

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errCorrupt = errors.New("the record is corrupt")

// appendRecord adds a record with accepts of one sale on one partition.
func appendRecord(to []byte, at pipeline.SalePartition, accepts []pipeline.Accept) []byte {
	start := len(to)
	to = append(to, make([]byte, recordHeader)...)
	to = binary.AppendUvarint(to, uint64(at.Partition))
	to = appendText(to, at.SaleID)
	to = binary.AppendUvarint(to, uint64(len(accepts)))
	for i := range accepts {
		a := &accepts[i]
		to = appendText(to, a.OrderID)
		to = appendText(to, a.UserID)
		for _, n := range [...]uint64{
			uint64(a.Number), uint64(a.Quantity), uint64(a.Sequence), uint64(a.AcceptedAt.UnixMilli()),
		} {
			to = binary.AppendUvarint(to, n)
		}
		to = appendText(to, a.KeyHash)
		to = appendText(to, a.PayloadHash)
		to = appendText(to, a.TraceParent)
	}
	payload := to[start+recordHeader:]
	binary.LittleEndian.PutUint32(to[start:], recordMagic)
	binary.LittleEndian.PutUint32(to[start+4:], uint32(len(payload)))
	binary.LittleEndian.PutUint32(to[start+8:], crc32.Checksum(payload, castagnoli))
	return to
}

func appendText(to []byte, s string) []byte {
	to = binary.AppendUvarint(to, uint64(len(s)))
	return append(to, s...)
}

// nextRecord returns the payload of the record at the start of data, and the record's length.
func nextRecord(data []byte) (payload []byte, length int, err error) {
	if len(data) < recordHeader || binary.LittleEndian.Uint32(data) != recordMagic {
		return nil, 0, errCorrupt
	}
	n := binary.LittleEndian.Uint32(data[4:])
	if n > maxRecord || int(n) > len(data)-recordHeader {
		return nil, 0, errCorrupt
	}
	payload = data[recordHeader : recordHeader+int(n)]
	if crc32.Checksum(payload, castagnoli) != binary.LittleEndian.Uint32(data[8:]) {
		return nil, 0, errCorrupt
	}
	return payload, recordHeader + int(n), nil
}

// decodePayload reads the accepts of a record. Each is checked like an event of the stream.
func decodePayload(payload []byte) (pipeline.SalePartition, []pipeline.Accept, error) {
	r := reader{data: payload}
	at := pipeline.SalePartition{Partition: pipeline.Partition(r.number(pipeline.MaxPartitions - 1)), SaleID: r.text()}
	n := r.number(maxRecord)
	var accepts []pipeline.Accept
	for range n {
		a := pipeline.Accept{Event: pipeline.Event{Partition: at.Partition, SaleID: at.SaleID}}
		a.OrderID, a.UserID = r.text(), r.text()
		a.Number, a.Quantity = int64(r.number(1<<63-1)), int(r.number(pipeline.MaxQuantityLimit))
		a.Sequence, a.AcceptedAt = int64(r.number(1<<53)), time.UnixMilli(int64(r.number(1<<48))).UTC()
		a.KeyHash, a.PayloadHash, a.TraceParent = r.text(), r.text(), r.text()
		if r.bad {
			break
		}
		if !possible(&a) {
			return at, nil, errCorrupt
		}
		accepts = append(accepts, a)
	}
	if r.bad || len(r.data) > 0 {
		return at, nil, errCorrupt
	}
	return at, accepts, nil
}

// possible reports whether an accept can be one, like an event of the stream that is decoded.
func possible(a *pipeline.Accept) bool {
	return uuid.Validate(a.OrderID) == nil && pipeline.ValidSaleID(a.SaleID) && pipeline.ValidateUserID(a.UserID) == nil &&
		a.Number >= 1 && a.Quantity >= 1 && a.Sequence >= 1
}

// partitionOf returns the partition of a record whose checksum is right.
func partitionOf(payload []byte) pipeline.Partition {
	n, _ := binary.Uvarint(payload)
	return pipeline.Partition(min(n, pipeline.MaxPartitions))
}

// reader reads the parts of a payload. After the first that can't be right, bad is set and the rest is zero.
type reader struct {
	data []byte
	bad  bool
}

func (r *reader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.data)
	if r.bad || n <= 0 || v > most {
		r.bad = true
		return 0
	}
	r.data = r.data[n:]
	return v
}

func (r *reader) text() string {
	n := r.number(maxText)
	if r.bad || n > uint64(len(r.data)) {
		r.bad = true
		return ""
	}
	s := string(r.data[:n])
	r.data = r.data[n:]
	return s
}
