//! Which columns of a Parquet file hold integers, and which hold times.

use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::data_type::Int96;
use parquet::schema::types::ColumnDescriptor;

/// Dates and times are integers, too, but not these.
pub(super) fn is_integer(column: &ColumnDescriptor) -> bool {
    use ConvertedType as C;
    let plain = matches!(column.logical_type_ref(), None | Some(LogicalType::Integer(_)))
        && matches!(
            column.converted_type(),
            C::NONE | C::INT_8 | C::INT_16 | C::INT_32 | C::INT_64 | C::UINT_8 | C::UINT_16 | C::UINT_32 | C::UINT_64
        );
    plain && matches!(column.physical_type(), Physical::INT32 | Physical::INT64)
}

/// Nanoseconds of the unit of a column of timestamps.
pub(super) fn timestamp_ns(column: &ColumnDescriptor) -> Option<u64> {
    match column.physical_type() {
        Physical::INT64 => {}
        // Always a timestamp, see `since_1970_ns`.
        Physical::INT96 => return Some(1),
        _ => return None,
    }
    match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Timestamp(timestamp)), _) => Some(match timestamp.unit {
            TimeUnit::MILLIS => 1_000_000,
            TimeUnit::MICROS => 1_000,
            TimeUnit::NANOS => 1,
        }),
        (None, ConvertedType::TIMESTAMP_MILLIS) => Some(1_000_000),
        (None, ConvertedType::TIMESTAMP_MICROS) => Some(1_000),
        _ => None,
    }
}

/// Nanoseconds since 1970 of a timestamp as Spark and Hive write it: nanoseconds of a day, and the number of the Julian day.
pub(super) fn since_1970_ns(timestamp: &Int96) -> Result<u64, String> {
    const JULIAN_DAY_OF_1970: i128 = 2_440_588;
    const DAY_NS: i128 = 86_400_000_000_000;
    let [low, high, day] = *timestamp.data() else { return Err("time_ns is empty".to_owned()) };
    let of_day = i128::from(low) | i128::from(high) << 32;
    let ns = (i128::from(day) - JULIAN_DAY_OF_1970) * DAY_NS + of_day;
    u64::try_from(ns).map_err(|_| format!("time_ns is {ns} ns since 1970; it must be from 0 to below 2^64 ns"))
}
